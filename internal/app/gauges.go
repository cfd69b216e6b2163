package app

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sovereign/internal/base/money"
	"sovereign/internal/base/panics"
	"sovereign/internal/domain/catalog"
)

// gauges are the metrics that are read when they are asked for.
func (i *instance) gauges() []prometheus.Collector {
	return slices.Concat(i.stateGauges(), i.moneyGauges(), i.loggingGauges(), i.connectionGauges(), i.nodeGauges())
}

func gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

func count(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read)
}

func (i *instance) stateGauges() []prometheus.Collector {
	return []prometheus.Collector{
		gauge("sovereign_feed_version", "The version of change that is in force.", func() float64 {
			return float64(i.state.feed.Applied())
		}),
		gauge("sovereign_keys", "API keys in force.", func() float64 { return float64(i.state.directory.Keys()) }),
		gauge("sovereign_inference_running", "Inference requests that are running.", func() float64 {
			return float64(i.plane.gateway.Running())
		}),
		count("sovereign_panics_total", "Panics that were contained.", func() float64 {
			return float64(panics.Count())
		}),
		gauge("sovereign_cache_bytes", "Bytes of answers that are remembered.", func() float64 {
			_, bytes := i.plane.cache.Stats()
			return float64(bytes)
		}),
		gauge("sovereign_circuits_open", "Models that are left alone because they failed too often.", func() float64 {
			return float64(len(i.plane.breaker.Open()))
		}),
		gauge("sovereign_catalog_age_days", "Days since the built-in catalog's prices were gathered.", func() float64 {
			return float64(catalog.Age(time.Now()))
		}),
		gauge("sovereign_serving", "1 while requests are served, 0 while the data is not ours.", func() float64 {
			if i.gate() != nil {
				return 0
			}
			return 1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sovereign_build_info", Help: "The release that runs.",
			ConstLabels: prometheus.Labels{"version": version()},
		}, func() float64 { return 1 }),
	}
}

func (i *instance) moneyGauges() []prometheus.Collector {
	return []prometheus.Collector{
		gauge("sovereign_held_usd", "Money that running requests hold, in dollars.", func() float64 {
			return float64(i.state.funds.Held()) / float64(money.Dollar)
		}),
		gauge("sovereign_journal_lag_seconds",
			"For how long the ledger has been behind the journal; 0 when it keeps up.", func() float64 {
				return i.state.poster.Lag().Seconds()
			}),
		gauge("sovereign_journal_writable",
			"1 while charges can be recorded; while 0, inference is refused.", func() float64 {
				if i.state.journal.Failure() != nil {
					return 0
				}
				return 1
			}),
		gauge("sovereign_ledger_set_aside",
			"Charges that the ledger cannot hold, and that are kept beside the journal.", func() float64 {
				return float64(i.state.poster.SetAsideCount())
			}),
	}
}

func (i *instance) loggingGauges() []prometheus.Collector {
	return []prometheus.Collector{
		gauge("sovereign_log_spool_bytes", "Bytes of logged exchanges that wait for their database.", func() float64 {
			return float64(i.state.spool.State().Waiting)
		}),
		count("sovereign_log_rows_total", "Chat exchanges that were logged.", func() float64 {
			return float64(i.state.recorder.Counts().Logged)
		}),
		count("sovereign_log_too_large_total", "Chat exchanges that were too large to be logged.", func() float64 {
			return float64(i.state.recorder.Counts().TooLarge)
		}),
		count("sovereign_log_unreadable_total",
			"Chat exchanges whose request or answer could not be parsed for the log.", func() float64 {
				return float64(i.state.recorder.Counts().Unreadable)
			}),
		count("sovereign_log_lost_total",
			"Logged exchanges that were lost: the spool was full, or could not be written.", func() float64 {
				return float64(i.state.recorder.Counts().Lost)
			}),
		count("sovereign_log_set_aside_total",
			"Logged exchanges that could not be read or stored, and are lost.", func() float64 {
				return float64(i.state.ingester.SetAside())
			}),
	}
}

func (i *instance) connectionGauges() []prometheus.Collector {
	return []prometheus.Collector{
		gauge("sovereign_buffered_bytes", "Bytes of request bodies held now.", func() float64 {
			return float64(i.plane.bounds.Buffered.Used())
		}),
		gauge("sovereign_connections", "Open connections of the API.", func() float64 {
			return float64(i.plane.bounds.Connections.Counts().Open)
		}),
		gauge("sovereign_connections_keyless", "Open connections that have not shown a valid key.", func() float64 {
			return float64(i.plane.bounds.Connections.Counts().Keyless)
		}),
		count("sovereign_connections_evicted_total",
			"Connections without a valid key that were closed to make room.", func() float64 {
				return float64(i.plane.bounds.Connections.Counts().Evicted)
			}),
		count("sovereign_connections_refused_total",
			"Connections and keyless requests that were over a limit.", func() float64 {
				return float64(i.plane.bounds.Connections.Counts().Refused)
			}),
	}
}

func (i *instance) nodeGauges() []prometheus.Collector {
	return []prometheus.Collector{
		gauge("sovereign_nodes", "Servers of this database that are members, this one included.", func() float64 {
			return float64(i.member.Nodes())
		}),
		gauge("sovereign_nodes_differ",
			"1 while servers of this database differ in their release, catalog or providers.", func() float64 {
				if i.member.Differs() {
					return 1
				}
				return 0
			}),
		gauge("sovereign_node_lease_seconds",
			"What is left of this server's lease on PostgreSQL; it is renewed twice a second.", func() float64 {
				return i.member.Remaining().Seconds()
			}),
		gauge("sovereign_node_epoch",
			"The life of this server as a member; 0 on the embedded database.", func() float64 {
				return float64(i.member.Life().Epoch)
			}),
		count("sovereign_node_joins_total", "How many times this process has become a member.", func() float64 {
			joins, _ := i.member.Counts()
			return float64(joins)
		}),
		count("sovereign_node_awaits_total", "Changes that have waited for the other servers.", func() float64 {
			_, awaits := i.member.Counts()
			return float64(awaits)
		}),
	}
}
