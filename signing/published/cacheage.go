// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// cacheAge returns how long any cache may use an answer (RFC 9111, section 4.2.1): as the greatest
// of max-age, s-maxage and Expires, and for stale-while-revalidate longer (RFC 5861, section 3). It
// is what the rules allow at most: no-cache and the like, which would shorten it, do not count, because
// some clients ignore them.
func cacheAge(header http.Header, now time.Time) time.Duration {
	var fresh, stale time.Duration
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(name) {
		case "max-age", "s-maxage":
			fresh = max(fresh, seconds(value))
		case "stale-while-revalidate":
			stale = max(stale, seconds(value))
		}
	}
	if expires, err := http.ParseTime(header.Get("Expires")); err == nil {
		// By the clock of a cache, and by that of the server, which may differ.
		fresh = max(fresh, expires.Sub(now))
		if date, err := http.ParseTime(header.Get("Date")); err == nil {
			fresh = max(fresh, expires.Sub(date))
		}
	}
	return fresh + stale
}

// seconds reads a number of them, 0 if it is none. More than fit count as 68 years, as in RFC 9111,
// section 1.2.2.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(strings.Trim(text, `" `), 10, 64)
	if err != nil && n == 0 {
		return 0
	}
	return time.Duration(min(n, math.MaxInt32)) * time.Second
}
