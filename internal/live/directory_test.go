package live

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

const second clock.Time = 1_000_000

func digest(n int) apikey.Digest { return sha256.Sum256(fmt.Append(nil, n)) }

// neighbours returns digests in one shard, so that changes to them contend.
func neighbours(d *Directory, count int) []apikey.Digest {
	all := []apikey.Digest{digest(0)}
	for n := 1; len(all) < count; n++ {
		if one := digest(n); d.keys.slot(one) == d.keys.slot(all[0]) {
			all = append(all, one)
		}
	}
	return all
}

func keyID(n int) tenant.KeyID { return tenant.KeyID(fmt.Sprint("key_", n)) }

var ann = Member{Workspace: "ws_1", User: "ann"}

// annsKey returns the n-th key of ann.
func annsKey(n int) Key {
	return Key{ID: keyID(n), Workspace: ann.Workspace, User: ann.User}
}

func status(d *Directory, key apikey.Digest) KeyStatus {
	_, v := d.Authenticate(key, 1000*second)
	return v
}

func TestAnEmptyDirectoryGrantsNothing(t *testing.T) {
	d := NewDirectory()
	for _, any := range []apikey.Digest{{}, digest(1)} {
		if caller, v := d.Authenticate(any, 1); v != Unknown || caller != (tenant.Caller{}) {
			t.Errorf("%v %v", caller, v)
		}
	}
}

// TestTheDirectoryMatchesAModel compares the directory with plain maps under any sequence of changes.
func TestTheDirectoryMatchesAModel(t *testing.T) {
	type owner struct {
		id tenant.KeyID
		m  Member
	}
	const universe = 12
	digests := rapid.IntRange(0, universe-1)
	members := rapid.Custom(func(t *rapid.T) Member {
		return Member{Workspace: rapid.SampledFrom([]tenant.ID{"ws_1", "ws_2"}).Draw(t, "ws"), User: rapid.SampledFrom([]tenant.UserID{"ann", "bob"}).Draw(t, "user")}
	})
	roles := rapid.SampledFrom(tenant.Roles)
	rapid.Check(t, func(t *rapid.T) {
		d, keys, memberRoles := NewDirectory(), map[int]owner{}, map[Member]tenant.Role{}
		made := 0
		fresh := func(m Member) (owner, Key) {
			made++
			return owner{keyID(made), m}, Key{ID: keyID(made), Workspace: m.Workspace, User: m.User}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put key": func(t *rapid.T) {
				n := digests.Draw(t, "n")
				o, key := fresh(members.Draw(t, "member"))
				d.PutKey(digest(n), key)
				if _, there := keys[n]; !there {
					keys[n] = o
				}
			},
			"drop key": func(t *rapid.T) {
				n := digests.Draw(t, "n")
				d.DropKey(digest(n))
				delete(keys, n)
			},
			"put member": func(t *rapid.T) {
				m, role := members.Draw(t, "member"), roles.Draw(t, "role")
				d.PutMember(m, role)
				memberRoles[m] = role
			},
			"drop member": func(t *rapid.T) {
				m := members.Draw(t, "member")
				d.DropMember(m)
				delete(memberRoles, m)
			},
			"replace": func(t *rapid.T) {
				all := map[apikey.Digest]Key{}
				keys = map[int]owner{}
				for _, n := range rapid.SliceOfNDistinct(digests, 0, universe, rapid.ID[int]).Draw(t, "digests") {
					o, key := fresh(members.Draw(t, "member"))
					keys[n], all[digest(n)] = o, key
				}
				memberRoles = rapid.MapOf(members, roles).Draw(t, "roles")
				d.Replace(all, memberRoles)
			},
			"": func(t *rapid.T) {
				if d.Keys() != len(keys) {
					t.Fatalf("%d keys, want %d", d.Keys(), len(keys))
				}
				for n := range universe {
					wantCaller, want := tenant.Caller{}, Unknown
					if o, there := keys[n]; there {
						wantCaller, want = tenant.Caller{Workspace: o.m.Workspace, User: o.m.User, Key: o.id}, Departed
						if role, belongs := memberRoles[o.m]; belongs {
							wantCaller.Role, want = role, Granted
						}
					}
					if caller, got := d.Authenticate(digest(n), 1); got != want || caller != wantCaller {
						t.Fatalf("key %d: got %v %v, want %v %v", n, caller, got, wantCaller, want)
					}
				}
			},
		})
	})
}

func TestRevokedKeyIsNotFoundByAReadThatStartsAfterDropReturned(t *testing.T) {
	const changes, readers = 5000, 4
	d := NewDirectory()
	d.PutMember(ann, tenant.Owner)
	digests := neighbours(d, 65)
	standing, digests := digests[0], digests[1:]
	d.PutKey(standing, annsKey(0))
	of := func(change int) apikey.Digest { return digests[change%len(digests)] }
	var dropped atomic.Int64 // the last change that is over; its key comes back only len(digests) changes later
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for last := 0; last < changes; {
				last = int(dropped.Load())
				gone := status(d, of(last))
				if over := int(dropped.Load()); gone != Unknown && over < last+len(digests)-1 {
					t.Errorf("the key of change %d was dropped and is %v during change %d", last, gone, over+1)
				}
				if v := status(d, standing); v != Granted {
					t.Errorf("an untouched key is %v", v)
				}
			}
		})
	}
	for change := 1; change <= changes; change++ {
		d.PutKey(of(change), annsKey(change))
		if v := status(d, of(change)); v != Granted {
			t.Errorf("a key was put and is %v", v)
		}
		d.DropKey(of(change))
		dropped.Store(int64(change))
	}
	group.Wait()
}

func TestConcurrentChangesAllTakeEffect(t *testing.T) {
	const writers, each = 8, 20
	d := NewDirectory()
	d.PutMember(ann, tenant.Owner)
	digests := neighbours(d, 2*writers*each)
	put, drop := digests[:writers*each], digests[writers*each:]
	for _, one := range drop {
		d.PutKey(one, annsKey(1))
	}
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w * each; i < (w+1)*each; i++ {
				d.PutKey(put[i], annsKey(1))
				d.DropKey(drop[i])
			}
		})
	}
	group.Wait()
	for i := range put {
		if status(d, put[i]) != Granted || status(d, drop[i]) != Unknown {
			t.Errorf("put: %v, dropped: %v", status(d, put[i]), status(d, drop[i]))
		}
	}
}

func TestDemotionIsSeenByAReadThatStartsAfterItReturned(t *testing.T) {
	d := NewDirectory()
	d.PutKey(digest(1), annsKey(1))
	d.PutMember(ann, tenant.Owner)
	var demoted atomic.Bool
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for after := false; !after; {
				after = demoted.Load()
				if caller, _ := d.Authenticate(digest(1), 1); after && caller.Role != tenant.Member {
					t.Errorf("the role is %s after the demotion", caller.Role)
				}
			}
		})
	}
	d.PutMember(ann, tenant.Member)
	demoted.Store(true)
	group.Wait()
}

func TestAMemberWhoLeftIsDepartedAndGrantedAfterReturning(t *testing.T) {
	d := NewDirectory()
	d.PutKey(digest(1), annsKey(1))
	d.PutMember(Member{Workspace: "ws_2", User: ann.User}, tenant.Owner)
	for _, step := range []struct {
		change func()
		want   KeyStatus
		role   tenant.Role
	}{
		{func() {}, Departed, ""},
		{func() { d.PutMember(ann, tenant.Admin) }, Granted, tenant.Admin},
		{func() { d.DropMember(ann) }, Departed, ""},
		{func() { d.PutMember(ann, tenant.Member) }, Granted, tenant.Member},
	} {
		step.change()
		want := tenant.Caller{Workspace: "ws_1", User: "ann", Key: keyID(1), Role: step.role}
		if caller, v := d.Authenticate(digest(1), 1); v != step.want || caller != want {
			t.Fatalf("got %v %v, want %v %v", caller, v, want, step.want)
		}
	}
}

func TestUsesReturnsEachUsedKeyOnceWithItsLatestTime(t *testing.T) {
	d := NewDirectory()
	d.PutMember(ann, tenant.Owner)
	for n := range 4 {
		d.PutKey(digest(n), annsKey(n))
	}
	d.PutKey(digest(9), Key{ID: keyID(9), Workspace: ann.Workspace, User: "left"})
	for at := 10 * second; at <= 20*second; at += second {
		for _, n := range []int{1, 2, 9, 404} {
			d.Authenticate(digest(n), at+clock.Time(n))
		}
	}
	taken := d.Uses(math.MaxInt)
	latest := map[tenant.KeyID]clock.Time{}
	for _, use := range taken {
		latest[use.Key] = use.At
		if use.Workspace != ann.Workspace {
			t.Errorf("%+v", use)
		}
	}
	if len(taken) != 2 || latest[keyID(1)] != 20*second+1 || latest[keyID(2)] != 20*second+2 {
		t.Errorf("keys 1 and 2 were used until 20 s: %+v", taken)
	}
	if again := d.Uses(math.MaxInt); len(again) != 0 {
		t.Errorf("returned twice: %+v", again)
	}
	d.Authenticate(digest(1), 30*second)
	if later := d.Uses(math.MaxInt); len(later) != 1 || later[0].At != 30*second {
		t.Errorf("a later use: %+v", later)
	}
}

func TestAUseDuringUsesIsReturnedThenOrNext(t *testing.T) {
	d := NewDirectory()
	d.PutMember(ann, tenant.Owner)
	d.PutKey(digest(1), annsKey(1))
	var returned, calls atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for !stop.Load() {
			for _, use := range d.Uses(math.MaxInt) {
				returned.Store(int64(use.At))
			}
			calls.Add(1)
			runtime.Gosched()
		}
	})
	for round := range 2_000 {
		at := clock.Time(round+1) * 2 * second
		d.Authenticate(digest(1), at)
		d.Authenticate(digest(1), at+second)
		for before := calls.Load(); calls.Load() < before+2; { // a whole call of Uses has begun and ended since
			runtime.Gosched()
		}
		if returned.Load() != int64(at+second) {
			t.Errorf("last used at %d, and returned at %d", at+second, returned.Load())
			break
		}
	}
	stop.Store(true)
	group.Wait()
}

func TestRequeuedUsesAreReturnedOnceWithTheirLatestTime(t *testing.T) {
	d := NewDirectory()
	d.PutMember(ann, tenant.Owner)
	for n := range 2 {
		d.PutKey(digest(n), annsKey(n))
		d.Authenticate(digest(n), 10*second)
	}
	taken := d.Uses(math.MaxInt)
	d.Authenticate(digest(1), 20*second)
	d.RequeueUses(taken)
	again := d.Uses(math.MaxInt)
	latest := map[tenant.KeyID]clock.Time{}
	for _, use := range again {
		latest[use.Key] = use.At
	}
	if len(again) != 2 || latest[keyID(0)] != 10*second || latest[keyID(1)] != 20*second {
		t.Errorf("%+v", again)
	}
	if rest := d.Uses(math.MaxInt); len(rest) != 0 {
		t.Errorf("returned twice: %+v", rest)
	}
}

func TestPutKeyKeepsTheUseOfAnActiveKey(t *testing.T) {
	d := NewDirectory()
	d.PutMember(ann, tenant.Owner)
	d.PutKey(digest(1), annsKey(1))
	d.Authenticate(digest(1), 10*second)
	d.PutKey(digest(1), annsKey(1))
	d.Authenticate(digest(1), 10*second+second/2)
	if uses := d.Uses(math.MaxInt); len(uses) != 1 || uses[0].At != 10*second {
		t.Errorf("%+v", uses)
	}
}

func filled(keys int) *Directory {
	d, all := NewDirectory(), make(map[apikey.Digest]Key, keys)
	for n := range keys {
		all[digest(n)] = annsKey(n)
	}
	d.Replace(all, map[Member]tenant.Role{ann: tenant.Owner})
	return d
}

func BenchmarkAuthenticate(b *testing.B) {
	for _, keys := range []int{10, 1_000_000} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			d := filled(keys)
			asked := make([]apikey.Digest, 1024)
			for i := range asked {
				asked[i] = digest(rand.IntN(keys))
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, v := d.Authenticate(asked[i%len(asked)], 1000*second); v != Granted {
						b.Error(v)
					}
				}
			})
		})
	}
}

func BenchmarkChangeAmongAMillionKeys(b *testing.B) {
	d := filled(1_000_000)
	key := annsKey(-1)
	b.ReportAllocs()
	for n := -1; b.Loop(); n-- {
		d.PutKey(digest(n), key)
		d.DropKey(digest(n))
	}
}
