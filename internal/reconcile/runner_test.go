// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var errBoom = errors.New("boom")

// running is a Runner under Run, and how to end it.
type running struct {
	*Runner[string]
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
}

// run starts a Runner. It belongs into a synctest bubble, which fails the test if Run leaves
// anything behind.
func run(ctx context.Context, config Config[string]) *running {
	if config.Name == "" {
		config.Name = "test"
	}
	config.Workers = max(config.Workers, 1)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{Runner: New(config), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.Run(ctx)
	}()
	return r
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

// hasEnded reports whether Run has returned by now.
func (r *running) hasEnded() bool {
	synctest.Wait()
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := run(t.Context(), Config[string]{Sync: func(ctx context.Context, key string) error {
			d.Write(key + " begins")
			time.Sleep(2 * time.Second)
			testutil.CheckError(t, "the sync under way, before the drain time is over", "", ctx.Err())
			d.Write(key + " ends")
			return errBoom
		}})
		r.Add("under way")
		synctest.Wait()
		r.Add("queued")
		r.AddAfter("due soon", time.Second)

		r.cancel()
		testutil.Expect(t, !r.hasEnded(), "Run returned although a sync is under way")
		r.Add("too late")
		<-r.ended
		d.Write("Run ends")
		time.Sleep(time.Hour) // nor is it retried

		want := []string{"0s under way begins", "2s under way ends", "2s Run ends"}
		testutil.Check(t, "what happened", want, d.Lines())
	})
}

func TestAHangingSyncIsCancelledAfterTheDrainTime(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		var cause error
		r := run(t.Context(), Config[string]{Sync: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = ctx.Err()
			return cause
		}})
		r.Add("hangs")
		time.Sleep(time.Hour) // a sync may take its time as long as the loop runs
		testutil.Require(t, cause == nil, "the sync was cancelled while the loop ran: %v", cause)

		d := testutil.NewDiary()
		r.stop()
		d.Write("Run ends")
		testutil.Check(t, "what happened", []string{DrainTimeout.String() + " Run ends"}, d.Lines())
		testutil.Expect(t, cause == context.Canceled, "the sync ended with %v, want %v", cause, context.Canceled)
	})
}

// TestAcrossAJump: what is to come later neither comes at once nor an hour late because
// the time of day has jumped.
func TestAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		d, clock, failures := testutil.NewDiary(), testutil.NewJumpingClock(), 2
		r := run(t.Context(), Config[string]{Clock: clock, Sync: func(_ context.Context, key string) error {
			d.Write(key)
			if key == "fails" && failures > 0 {
				failures--
				return errBoom
			}
			return nil
		}})
		defer r.stop()
		r.AddAfter("later", time.Minute)
		r.Add("fails")
		d.Lines()
		clock.Jump(jump)
		time.Sleep(3 * time.Hour)
		testutil.Check(t, "syncs", []string{"0s fails", "20ms fails", "60ms fails", "1m0s later"}, d.Lines())
	})
}

// TestRunAgain covers a process that leads, loses the lease and leads again, and a replica that gets
// events of work for the leader.
func TestRunAgain(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := New(Config[string]{Workers: 1, Sync: func(_ context.Context, key string) error {
			d.Write(key)
			return nil
		}})
		r.AddIfRunning("before")
		for _, key := range []string{"first", "second"} {
			r.Add(key)
			r.AddAfter("too late", time.Hour)
			time.AfterFunc(time.Second, func() { r.AddIfRunning("event of " + key) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r.Run(ctx)
			cancel()
			r.AddIfRunning("between " + key)
		}
		testutil.Check(t, "syncs", []string{"0s first", "1s event of first", "1m0s second", "1m1s event of second"}, d.Lines())
	})
}

// TestStopAtOnce covers a lost lease: another process may lead by now.
func TestStopAtOnce(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := New(Config[string]{Workers: 1, Sync: func(ctx context.Context, key string) error {
			d.Write(key)
			<-ctx.Done()
			return ctx.Err()
		}})
		r.Add("under way")
		r.Add("waiting")
		queue := r.current()
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(ErrAtOnce) })
		r.Run(ctx)
		testutil.Check(t, "what is under way is not waited for", time.Second, time.Since(d.Began))
		testutil.Check(t, "syncs", []string{"0s under way"}, d.Lines())
		testutil.Check(t, "depth of the queue, a metric", 0, queue.Len())
	})
}

func TestRunWatching(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client, diary := fake.NewClientset(configMap("here")), testutil.NewDiary()
		client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			return false, nil, nil
		})
		loop := New(Config[string]{Name: "test", Workers: 1, Sync: func(_ context.Context, key string) error {
			diary.Write("sync " + key)
			return nil
		}})
		watch := Watch{
			Informer: corev1informers.NewConfigMapInformer(client, "ns", 0, cache.Indexers{}),
			Observe: func(obj any, deleted bool) {
				diary.Write(fmt.Sprintf("%s deleted=%t", obj.(*corev1.ConfigMap).Name, deleted))
			},
		}
		stop := testutil.Start(t, func(ctx context.Context) error { return loop.RunWatching(ctx, "all", watch) })

		time.Sleep(10 * time.Second)
		configMaps := client.CoreV1().ConfigMaps("ns")
		testutil.Get(configMaps.Create(t.Context(), configMap("new"), metav1.CreateOptions{}))(t)
		time.Sleep(10 * time.Second)
		testutil.Must(t, configMaps.Delete(t.Context(), "new", metav1.DeleteOptions{}))
		synctest.Wait()
		watch.handler(func() {}).OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/gone", Obj: configMap("gone")}) // the watch missed it
		want := []string{
			"1s here deleted=false", "1s sync all", "10s new deleted=false", "10s sync all", "20s new deleted=true", "20s sync all",
			"20s gone deleted=true",
		}
		testutil.Check(t, "what happened", want, diary.Lines())
		stop()
		testutil.Expect(t, watch.Informer.IsStopped(), "the watch goes on")
	})
}

// TestRunWatchingEndsAtOnce: an apiserver that does not answer must not delay the end.
func TestRunWatchingEndsAtOnce(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		loop := New(Config[string]{Name: "test", Workers: 1, Sync: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		testutil.CheckError(t, "run", "", loop.RunWatching(ctx, "all"))
		testutil.Check(t, "time", time.Minute, time.Since(begin))
	})
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	var objects, names []string
	onObject := OnEvery(func(obj any) {
		if secret, ok := obj.(*corev1.Secret); ok {
			objects = append(objects, "ns/"+secret.Name)
		}
	})
	onName := OnEveryName(func(name cache.ObjectName) { names = append(names, name.String()) })
	for _, handler := range []cache.ResourceEventHandler{onObject, onName} {
		handler.OnAdd(secret("come"), true)
		handler.OnUpdate(secret("old"), secret("changed"))
		handler.OnDelete(secret("gone"))
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/missed", Obj: secret("missed")})
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "a/b/c"})
	}
	want := []string{"ns/come", "ns/changed", "ns/gone", "ns/missed"}
	testutil.Check(t, "objects", want, objects)
	testutil.Check(t, "names", want, names)

	objects = nil
	changes := OnChanges{onObject, func(obj any) bool { return obj.(*corev1.Secret).Name == "due" }}
	newer := secret("newer")
	newer.ResourceVersion = "2"
	for _, name := range []string{"idle", "due"} {
		changes.OnAdd(secret(name), true)
		changes.OnUpdate(secret(name), secret(name)) // a resync
	}
	changes.OnAdd(secret("new"), false)
	changes.OnUpdate(secret("newer"), newer)
	changes.OnDelete(secret("gone"))
	testutil.Check(t, "changes", []string{"ns/due", "ns/due", "ns/new", "ns/newer", "ns/gone"}, objects)
}

// slowInformer takes a second to register a handler, as in a large cluster.
type slowInformer struct{ cache.SharedIndexInformer }

func (s slowInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	time.Sleep(time.Second)
	return s.SharedIndexInformer.AddEventHandler(handler)
}

// TestNoDeletionIsMissedBetweenHandlers: what the first handler finds in the cache of the second one's resource, and is
// deleted then, is an event for the second.
func TestNoDeletionIsMissedBetweenHandlers(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := fake.NewClientset(configMap("here"))
		informer := corev1informers.NewConfigMapInformer(client, "ns", 0, cache.Indexers{})
		testutil.Start(t, func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
		synctest.Wait()
		d := testutil.NewDiary()
		first := cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			if _, there, _ := informer.GetIndexer().GetByKey("ns/here"); there {
				d.Write("the first finds it")
				_ = client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "here", metav1.DeleteOptions{})
			}
		}}
		second := cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { d.Write("the second sees it deleted") }}
		testutil.Must(t, WithHandlers(t.Context(), func() { time.Sleep(time.Minute) },
			Handled{"first", informer, first}, Handled{"second", slowInformer{informer}, second}))
		testutil.Check(t, "what happened", []string{"1s the first finds it", "1s the second sees it deleted"}, d.Lines())
	})
}

// TestWithHandlers: two handlers take a second and two for what is in the cache.
func TestWithHandlers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		lasts time.Duration // of ctx
		want  []string
	}{
		{"it runs after the whole replay", time.Minute, []string{"1s first", "2s second", "2s runs"}},
		{"or when the process ends", 1500 * time.Millisecond, []string{"1s first", "1.5s runs"}},
	} {
		testutil.Bubble(t, tt.name, func(t *testing.T) {
			informer := corev1informers.NewConfigMapInformer(fake.NewClientset(configMap("here")), "ns", 0, cache.Indexers{})
			testutil.Start(t, func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
			synctest.Wait()
			d := testutil.NewDiary()
			handled := func(name string, takes time.Duration) Handled {
				return Handled{name, informer, OnEvery(func(any) { time.Sleep(takes); d.Write(name) })}
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.lasts)
			defer cancel()
			testutil.Must(t, WithHandlers(ctx, func() { d.Write("runs") }, handled("first", time.Second),
				handled("second", 2*time.Second)))
			testutil.Check(t, "what happened", tt.want, d.Lines())
		})
	}
}
