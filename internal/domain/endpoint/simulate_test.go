package endpoint

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

var seed = flag.Uint64("seed", 0, "replay one simulation")

// errKilled is what a server dies of in a simulation.
var errKilled = errors.New("killed")

// Engines crash, load slowly or not at all, servers are killed between any two steps, people create, stop, start and
// delete, and wallets run dry. In the end everything that was deleted is gone, and every second of a ready engine was
// charged at most once, and all but an interval of those in which a server saw it.
func TestSerialSimulatedEndpointsConvergeAndAreChargedOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		seeds := []uint64{1, 2, 3}
		if *seed != 0 {
			seeds = []uint64{*seed}
		}
		h := newHouse(t, d, 60*money.Dollar)
		for _, one := range seeds {
			s := &simulation{house: h, random: rand.New(rand.NewPCG(one, 1))}
			s.run(250)
			if s.check(); t.Failed() {
				t.Fatalf("go test ./internal/domain/endpoint -run Simulated -seed %d", one)
			}
		}
	})
}

type simulation struct {
	*house
	random *rand.Rand
	ids    []string
	kills  int
}

func (s *simulation) chance(percent int) bool { return s.random.IntN(100) < percent }

func (s *simulation) run(steps int) {
	s.interrupt = func() {
		if s.kills > 0 && s.chance(15) {
			s.kills--
			panic(errKilled)
		}
	}
	for range steps {
		s.blind = s.chance(30)
		s.loading = time.Duration(1+s.random.IntN(90)) * time.Second
		s.broken = s.chance(10)
		s.grace = time.Duration(s.random.IntN(4)) * 5 * time.Second
		s.people()
		s.crash()
		if s.chance(8) {
			s.kills = 1
		}
		for range 1 + s.random.IntN(40) {
			s.pass(time.Duration(1+s.random.IntN(3)) * time.Second)
			s.bounded()
			if s.chance(20) || s.kills > 0 {
				s.look()
			}
		}
	}
	s.kills, s.broken, s.blind, s.loading, s.grace = 0, false, false, time.Second, 0
	s.interrupt = func() {}
	for _, id := range s.ids {
		err := s.Delete(s.t.Context(), dbtest.Mine, dbtest.Ann, id)
		if err != nil && fault.From(err).Kind != fault.Missing {
			s.t.Fatal(err)
		}
	}
	for range 200 {
		s.pass(time.Second)
		s.look()
	}
}

// look lets the server look after the endpoints. If it is killed, it is down for a while, and another starts.
func (s *simulation) look() {
	defer func() {
		got := recover()
		if got == nil {
			return
		}
		if killed, ok := got.(error); !ok || !errors.Is(killed, errKilled) {
			panic(got)
		}
		if s.chance(50) {
			s.pass(time.Duration(s.random.IntN(600)) * time.Second)
		}
		s.crash()
		s.restart()
	}()
	if err := s.reconcile(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// people create, stop, start and delete.
func (s *simulation) people() {
	ctx := s.t.Context()
	var err error
	switch one := s.random.IntN(12); {
	case one < 2 && len(s.ids) < 8:
		least := int64(s.random.IntN(2))
		var made Endpoint
		made, err = s.Create(ctx, dbtest.Mine, dbtest.Ann, Request{
			Name: "x", BaseModel: "m", MinReplicas: least, MaxReplicas: min(least+1+int64(s.random.IntN(2)), mostReplicas), IdleTimeout: 30,
		})
		if err == nil {
			s.ids = append(s.ids, made.ID)
		}
	case one == 2 && s.chance(20):
		_, err = s.wallets.TopUp(ctx, dbtest.Mine, tenant.Operator, money.Dollar, "")
		s.credit += money.Dollar
	case len(s.ids) == 0:
	case one == 3:
		_, err = s.Stop(ctx, dbtest.Mine, dbtest.Ann, s.any())
	case one < 6:
		_, err = s.Start(ctx, dbtest.Mine, dbtest.Ann, s.any())
	case one == 6 && s.chance(30):
		err = s.Delete(ctx, dbtest.Mine, dbtest.Ann, s.any())
	}
	if err == nil {
		return
	}
	switch fault.From(err).Kind {
	case fault.Missing, fault.Conflicting, fault.InsufficientBalance, fault.QuotaExceeded:
	default:
		s.t.Fatal(err)
	}
}

func (s *simulation) any() string { return s.ids[s.random.IntN(len(s.ids))] }

// crash lets engines end by themselves.
func (s *simulation) crash() {
	for _, d := range s.deployments {
		for _, e := range d.engines {
			if e.Phase != serving.Ended && s.chance(10) {
				s.die(e)
			}
		}
	}
}

// mostReplicas is the most that an endpoint of the simulation may have.
const mostReplicas = 3

// bounded checks that no endpoint has more engines than it may pay for, also while some end.
func (s *simulation) bounded() {
	s.t.Helper()
	for name, d := range s.deployments {
		n := 0
		for _, e := range d.engines {
			n += 1 - rank(e.end == 0)
		}
		if n > mostReplicas {
			s.t.Fatalf("%s has %d engines", name, n)
		}
	}
}

// check compares the ledger with how long engines really were ready.
func (s *simulation) check() {
	s.t.Helper()
	s.gone()
	billed := s.billed()
	total := int64(0)
	for _, e := range s.lives {
		got, most, least := billed[e.ID], int64(0), int64(0)
		if e.ReadyAt != 0 {
			most = since(e.ReadyAt, e.end)
		}
		if e.listed != 0 {
			least = max(since(e.ReadyAt, e.listed)-int64(meterEvery/time.Second), 0)
		}
		if got < least || got > most {
			s.t.Errorf("%s of %s: %d seconds are charged, want %d to %d", e.ID, e.of, got, least, most)
		}
		total += got
	}
	spent, err := db.One[money.Nano](s.t.Context(), s.DB.In(dbtest.Mine),
		`SELECT CAST(COALESCE(SUM(spent), 0) AS BIGINT) FROM named_holds WHERE workspace_id = $1`)
	s.ok(err)
	if free := wallettest.Free(s.t, s.wallets, dbtest.Mine); free != s.credit-spent {
		s.t.Errorf("the wallet has %s free of %s, and %s were spent", free, s.credit, spent)
	}
	s.t.Logf("%d engines, %d seconds charged, $%s spent", len(s.lives), total, spent)
}
