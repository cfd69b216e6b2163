package recall

// missed are the rules of which not every sample is found, each with the reason.
var missed = map[string]string{
	"asana-client-id":          "16 digits, which are no secret: they name an application",
	"discord-client-id":        "18 digits, which are no secret: they name an application",
	"curl-auth-user":           "user and password quoted one by one, or with brackets in them; user:password as people write it is found",
	"freemius-secret-key":      "29 characters of any kind, in quotes that do not match; those of letters and digits are found",
	"kubernetes-secret-yaml":   "a manifest, told by its kind some lines away; values under names that speak of secrets are found",
	"nytimes-access-token":     "one of its names is new-york-times, with a comma, which is a mistake; the name without one is found",
	"sourcegraph-access-token": "the form without a prefix: 40 hexadecimal digits, like every git hash",
}
