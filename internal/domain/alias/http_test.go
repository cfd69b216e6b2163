package alias_test

import (
	"regexp"
	"strings"
	"testing"

	"sovereign/internal/domain/alias"
	"sovereign/internal/store/api/apitest"
)

func (r fixture) client(t *testing.T) apitest.Client {
	t.Helper()
	routes := alias.NewHandler(r.Store, models).Routes()
	return apitest.NewClient(t, r.db, r.feed, mine, theirs, routes, func(text string) string { return shape.ReplaceAllString(text, "X") })
}

var shape = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(req|aud)_[0-9a-z]{26}\b`)

const (
	least = `{"object":"alias","name":"support","target_model":"sim/chat","description":"","canary_model":"","canary_percent":0,"fallback_models":[],"created_at":"X","updated_at":"X","gate_criterion_id":""}`
	most  = `{"object":"alias","name":"support","target_model":"sim/c","description":"d","canary_model":"sim/chat","canary_percent":5,"fallback_models":["sim/d","sim/chat"],"created_at":"X","updated_at":"X","gate_criterion_id":""}`
)

func TestTheLifeOfAnAliasOnTheWire(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
		d.Wants(t, d.Member, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[],"has_more":false}`)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/c","description":"d","canary_model":"sim/chat","canary_percent":5,"fallback_models":["sim/d","sim/chat"]}`, 200, most)
		d.Wants(t, d.Member, "GET", "/v1/aliases/support", "", 200, most)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat","description":null,"canary_model":null,"canary_percent":null,"fallback_models":null}`, 200, least)
		d.Wants(t, d.Member, "GET", "/v1/aliases?limit=1", "", 200, `{"object":"list","data":[`+least+`],"has_more":false}`)
		d.Wants(t, d.Owner, "DELETE", "/v1/aliases/support", "", 200, `{"id":"support","object":"alias","deleted":true}`)
		d.Refuses(t, d.Owner, "DELETE", "/v1/aliases/support", "", 404, "not_found", "")
		d.Refuses(t, d.Member, "GET", "/v1/aliases/support", "", 404, "not_found", "")
		entry := func(action, before, after string) string {
			return `{"id":"X","object":"audit_entry","at":"X","actor":{"kind":"key","user_id":"usr_owner","key_id":"key_owner"},"request_id":"X","action":"` + action + `","subject":"support","before":` + before + `,"after":` + after + `}`
		}
		d.Wants(t, d.Member, "GET", "/v1/aliases/support/history?limit=2", "", 200,
			`{"object":"list","data":[`+entry("alias.delete", least, "null")+`,`+entry("alias.put", most, least)+`],"has_more":true}`)
		d.Wants(t, d.Member, "GET", "/v1/aliases/support/history?limit=2&offset=2", "", 200,
			`{"object":"list","data":[`+entry("alias.put", least, most)+`,`+entry("alias.put", "null", least)+`],"has_more":false}`)
		d.Refuses(t, d.Member, "GET", "/v1/aliases/never/history", "", 404, "not_found", "")
	})
}

func TestAGateIsPartOfItsAlias(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
		gated := func(mode, rest string) string {
			return strings.Replace(least, `"gate_criterion_id":""`, `"gate_criterion_id":"crit_1","gate_mode":"`+mode+`",`+rest, 1)
		}
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat","gate_criterion_id":"crit_1","gate_mode":null}`, 200,
			gated("recommend", `"gate_min_samples":50,"gate_rollback_threshold":0.05,"gate_window_hours":168,"gate_sample_percent":100,"gate_max_cost_usd":10`))
		set := gated("auto", `"gate_min_samples":7,"gate_rollback_threshold":0.1,"gate_window_hours":2,"gate_sample_percent":0.5,"gate_max_cost_usd":0.25`)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat","gate_criterion_id":"crit_1","gate_mode":"auto","gate_min_samples":7,"gate_rollback_threshold":0.1,"gate_window_hours":2,"gate_sample_percent":0.5,"gate_max_cost_usd":0.25}`, 200, set)
		d.Wants(t, d.Member, "GET", "/v1/aliases/support", "", 200, set)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		if entries := r.history(t, mine, "support"); len(entries) != 3 {
			t.Errorf("%d changes are audited", len(entries))
		}
	})
}

func TestARefusedPutChangesNothing(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		for body, field := range map[string]string{
			`{"target_model":"sim/c"}`:                                                                   "name",
			`{"name":"support"}`:                                                                         "target_model",
			`{"name":"support","target_model":null}`:                                                     "target_model",
			`{"name":"support","target_model":"sim/none"}`:                                               "target_model",
			`{"name":"support","target_model":"dedicated/x"}`:                                            "target_model",
			`{"name":"plain-model","target_model":"sim/c"}`:                                              "name",
			`{"name":"support","target_model":"sim/c","canary_percent":1}`:                               "canary_model",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/d","canary_percent":1.5}`:      "canary_percent",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/d","canary_percent":"5"}`:      "canary_percent",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/d","canary_percent":1e30}`:     "canary_percent",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/embedding"}`:                   "canary_model",
			`{"name":"support","target_model":"sim/c","fallback_models":["sim/d","sim/d"]}`:              "fallback_models[1]",
			`{"name":"support","target_model":"sim/c","fallback_models":["sim/d",7]}`:                    "fallback_models[1]",
			`{"name":"support","target_model":"sim/c","fallback_models":"sim/d"}`:                        "fallback_models",
			`{"name":"support","target_model":"sim/c","gate":{}}`:                                        "gate",
			`{"name":"support","target_model":"sim/c","created_at":"2026-01-02T03:04:05Z"}`:              "created_at",
			`{"name":"support","target_model":"sim/c","description":"` + strings.Repeat("d", 501) + `"}`: "description",
		} {
			d.Refuses(t, d.Owner, "PUT", "/v1/aliases", body, 400, "invalid_parameter", field)
		}
		for field, values := range map[string][]string{
			"gate_mode":               {`"recommend"`, `"auto"`},
			"gate_min_samples":        {`50`},
			"gate_rollback_threshold": {`0.05`},
			"gate_window_hours":       {`168`},
			"gate_sample_percent":     {`100`},
			"gate_max_cost_usd":       {`10`},
		} {
			for _, value := range values { // they mean nothing without a judge
				d.Refuses(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/c","`+field+`":`+value+`}`, 400, "invalid_parameter", field)
			}
		}
		for field, values := range map[string][]string{
			"gate_criterion_id":       {`7`, `{}`},
			"gate_mode":               {`"off"`, `""`, `true`},
			"gate_min_samples":        {`0`, `-1`, `1.5`, `1000001`, `"50"`},
			"gate_rollback_threshold": {`0`, `-0.1`, `0.51`, `"0.05"`},
			"gate_window_hours":       {`0`, `2161`, `1.5`},
			"gate_sample_percent":     {`0`, `100.5`},
			"gate_max_cost_usd":       {`0`, `-1`, `"10"`, `1e30`},
		} {
			for _, value := range values {
				body := `{"name":"support","target_model":"sim/c","gate_criterion_id":"crit_1","` + field + `":` + value + `}`
				if field == "gate_criterion_id" {
					body = `{"name":"support","target_model":"sim/c","gate_criterion_id":` + value + `}`
				}
				d.Refuses(t, d.Owner, "PUT", "/v1/aliases", body, 400, "invalid_parameter", field)
			}
		}
		d.Refuses(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/embedding","gate_criterion_id":"crit_1"}`, 400, "invalid_parameter", "gate_criterion_id")
		d.Refuses(t, d.Member, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/c"}`, 403, "insufficient_permissions", "")
		d.Refuses(t, d.Member, "DELETE", "/v1/aliases/support", "", 403, "insufficient_permissions", "")
		d.Wants(t, d.Owner, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[`+least+`],"has_more":false}`)
		if entries := r.history(t, mine, "support"); len(entries) != 1 || r.target(mine, "support") != "sim/chat" {
			t.Errorf("routes to %s after %v", r.target(mine, "support"), entries)
		}
	})
}

func TestAnotherWorkspacesAliasIsNotFoundOnAnyRoute(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
		d.Wants(t, d.Owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		d.Refuses(t, d.Other, "GET", "/v1/aliases/support", "", 404, "not_found", "")
		d.Refuses(t, d.Other, "DELETE", "/v1/aliases/support", "", 404, "not_found", "")
		d.Refuses(t, d.Other, "GET", "/v1/aliases/support/history", "", 404, "not_found", "")
		d.Wants(t, d.Other, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[],"has_more":false}`)
		d.Wants(t, d.Owner, "GET", "/v1/aliases/support", "", 200, least)
	})
}
