// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

func (s *Server) review(r *Request) (any, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	switch review := decoded.(type) {
	case *authenticationv1.TokenReview:
		review.Status = s.Review(review.Spec.Token, review.Spec.Audiences)
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo.Username = "system:" + r.Manager
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status.Allowed = true
	}
	return decoded, nil
}

// lastUsed is what kube-apiserver writes on a Secret whose token was used.
const lastUsed = "kubernetes.io/legacy-token-last-used"

// Review is kube-apiserver's judgement of a token.
func (s *Server) Review(token string, audiences []string) (status authenticationv1.TokenReviewStatus) {
	user, granted, err := s.authenticate(token, audiences)
	if err != nil {
		status.Error = err.Error()
		return status
	}
	status.Authenticated, status.User, status.Audiences = true, user, granted
	return status
}

func (s *Server) authenticate(token string, audiences []string) (user authenticationv1.UserInfo, granted []string, err error) {
	if err := s.Verify(token); err != nil {
		return user, nil, errors.New("invalid bearer token")
	}
	var claims struct {
		Issuer    string `json:"iss"`
		Audience  any    `json:"aud"`
		Namespace string `json:"kubernetes.io/serviceaccount/namespace"`
		Secret    string `json:"kubernetes.io/serviceaccount/secret.name"`
		Name      string `json:"kubernetes.io/serviceaccount/service-account.name"`
		UID       string `json:"kubernetes.io/serviceaccount/service-account.uid"`
		Bound     struct {
			Namespace string `json:"namespace"`
			Account   struct {
				Name string `json:"name"`
				UID  string `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return user, nil, errors.New("invalid bearer token")
	}
	switch claims.Issuer {
	case "kubernetes/serviceaccount":
		v, err := s.tables["secrets"].get(claims.Namespace, claims.Secret)
		if err != nil || string(v.object.(*corev1.Secret).Data[corev1.ServiceAccountTokenKey]) != token {
			return user, nil, errors.New("token has been invalidated")
		}
		defer func() {
			if err == nil {
				s.noteUse(v)
			}
		}()
	case s.Issuer:
		claims.Namespace, claims.Name, claims.UID = claims.Bound.Namespace, claims.Bound.Account.Name, claims.Bound.Account.UID
		of, _ := claims.Audience.([]any)
		for _, one := range of {
			if name, _ := one.(string); slices.Contains(audiences, name) {
				granted = append(granted, name)
			}
		}
		if len(granted) == 0 {
			return user, nil, errors.New("token audiences is invalid for the target audiences")
		}
	default:
		return user, nil, errors.New("invalid bearer token")
	}
	v, err := s.tables["serviceaccounts"].get(claims.Namespace, claims.Name)
	if err != nil || v.object.GetUID() != types.UID(claims.UID) {
		return user, nil, fmt.Errorf("the ServiceAccount %s/%s with UID %s is gone", claims.Namespace, claims.Name, claims.UID)
	}
	return authenticationv1.UserInfo{Username: "system:serviceaccount:" + claims.Namespace + ":" + claims.Name, UID: claims.UID}, granted, nil
}

// noteUse sets the label of kube-apiserver, without its name in managedFields, which nothing here reads for it.
func (s *Server) noteUse(v *version) {
	secret := v.object.DeepCopyObject().(*corev1.Secret)
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	today := time.Now().UTC().Format(time.DateOnly)
	if secret.Labels[lastUsed] == today {
		return
	}
	secret.Labels[lastUsed] = today
	t := s.tables["secrets"]
	s.commit(t, v, secret)
}
