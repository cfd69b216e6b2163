package redact

// A rule describes one kind of credential.
type rule struct {
	name   string
	shapes []string // see parseShape
	kind   ruleKind // what is matched at a shape
	lead   lead     // characters before the shape that belong to the secret
}

// A ruleKind says how a match goes on at a shape.
type ruleKind uint8

const (
	token      ruleKind = iota // the shape is the secret
	random                     // the shape is the secret, if it looks random
	password                   // the shape names a password, and an assignment follows
	secret                     // the shape names a secret, a token or an API key, and an assignment follows
	key                        // the shape names a key, which is often not a secret, and an assignment follows
	vendor                     // the shape names an issuer of keys, and an assignment follows
	scheme                     // the shape is an HTTP authentication scheme, and a token follows
	userinfo                   // the shape is the scheme of a URL, and user:password@ may follow
	account                    // the shape is a flag that takes user:password
	privateKey                 // the shape is the first line of a PEM block
	jwt                        // the shape is the second of the three parts of a JWT
	encoded                    // there is no shape: base64 of a text with a credential
	awsSecret                  // the shape speaks of AWS, and a secret access key may follow
)

// A lead is a run of least to most characters of a class.
type lead struct {
	of          class
	least, most int
}

// rules lists all rules. Of rules with the same prefix, the first in the list is tried first. Lengths are the minimum
// that issuers use; a token extends as far as its character class does.
var rules = []rule{
	// Model providers.
	{name: "sovereign", shapes: []string{"sk_sovereign_{n:20,}", "rt_sovereign_{n:20,}", "wk_sovereign_{n:20,}"}},
	{name: "anthropic", shapes: []string{"sk-ant-{t:20,}"}},
	{name: "openai", shapes: []string{"sk-proj-{t:20,}", "sk-svcacct-{t:20,}", "sk-admin-{t:20,}", "sess-{a:40}"}},
	{name: "openrouter", shapes: []string{"sk-or-v1-{x:40,}"}},
	{name: "sk", shapes: []string{"sk-{t:16,}"}, kind: random},
	{name: "google-api", shapes: []string{"AIza{t:30,}", "GOCSPX-{t:24,}", "ya29.{t:20,}", "1//0{t:30,}"}},
	{name: "groq", shapes: []string{"gsk_{a:32,}"}},
	{name: "xai", shapes: []string{"xai-{a:40,}"}},
	{name: "huggingface", shapes: []string{"hf_{a:30,}", "api_org_{a:30,}"}},
	{name: "replicate", shapes: []string{"r8_{a:30,}"}},
	{name: "perplexity", shapes: []string{"pplx-{a:32,}"}},
	{name: "fireworks", shapes: []string{"fw_{a:22,}", "fpk_{a:22,}"}, kind: random},
	{name: "together", shapes: []string{"tgp_v1_{t:30,}"}},
	{name: "nvidia", shapes: []string{"nvapi-{t:40,}"}},
	{name: "cerebras", shapes: []string{"csk-{n:40,}"}},
	{name: "voyage", shapes: []string{"pa-{t:40,}"}, kind: random},
	{name: "elevenlabs", shapes: []string{"sk_{x:40,}"}},
	{name: "langsmith", shapes: []string{"lsv2_pt_{x:32}_{x:10}", "lsv2_sk_{x:32}_{x:10}"}},
	{name: "langfuse", shapes: []string{"sk-lf-{x:8}-{x:4}-{x:4}-{x:4}-{x:12}"}},
	{name: "tavily", shapes: []string{"tvly-{t:20,}"}, kind: random},
	{name: "pinecone", shapes: []string{"pcsk_{w:40,}"}},

	// Clouds.
	{name: "aws-secret", shapes: []string{"~amazon", "AKIA{k:16}", "ASIA{k:16}"}, kind: awsSecret},
	{name: "aws-access-key", shapes: []string{
		"AKIA{k:16}", "ASIA{k:16}", "ABIA{k:16}", "ACCA{k:16}", "AROA{k:16}", "AIDA{k:16}", "A3T{N:1}{k:16}",
		"QUtJQ{b:22,}", "QVNJQ{b:22,}",
	}},
	{name: "aws-bedrock", shapes: []string{"ABSK{b:100,}", "bedrock-api-key-{b:28,}"}},
	{name: "azure-storage", shapes: []string{"~AccountKey=^{b:40,}", "~SharedAccessKey=^{b:40,}"}},
	{name: "azure-sas", shapes: []string{"~sig=^{p:40,}", "~sig%3D^{p:40,}"}},
	{name: "azure-client-secret", shapes: []string{"{d:1}Q~{z:31,34}"}, lead: lead{tilde, 3, 3}},
	{name: "alibaba", shapes: []string{"LTAI{a:12,}"}, kind: random},
	{name: "tencent", shapes: []string{"AKID{a:32}"}},
	{name: "digitalocean", shapes: []string{"~dop_v1_{x:64,}", "~doo_v1_{x:64,}", "~dor_v1_{X:64,}"}},
	{name: "cloudflare", shapes: []string{"v1.0-{x:24}-{x:146}"}},
	{name: "flyio", shapes: []string{"fo1_{t:43,}", "fm1a_{b:100,}", "fm1r_{b:100,}", "fm2_{b:100,}"}},
	{name: "heroku", shapes: []string{"HRKU-{t:30,}"}},
	{name: "yandex", shapes: []string{"AQVN{t:35,38}", "t1.{t:10,}.{t:86}"}, kind: random},
	{name: "vercel", shapes: []string{"vercel_blob_rw_{w:20,}", "vcp_{a:24,}"}},
	{name: "scalingo", shapes: []string{"tk-us-{t:40,}"}},

	// Code hosts, registries and build services.
	{name: "github", shapes: []string{
		"ghp_{a:36,}", "gho_{a:36,}", "ghu_{a:36,}", "ghs_{a:36,}", "ghr_{a:36,}", "github_pat_{w:36,}",
	}},
	{name: "gitlab", shapes: []string{
		"glpat-{v:20,}", "glptt-{x:40,}", "gldt-{t:20,}", "glft-{t:20,}", "glffct-{t:20,}", "glimt-{t:25,}",
		"glagent-{t:50,}", "gloas-{t:64,}", "glrt-{v:20,}", "glsoat-{t:20,}", "glcbt-{a:1,5}_{t:20,}",
		"GR1348941{t:20,}", "Z2xwYXQt{b:26,}", "_gitlab_session=^{n:32,}",
	}},
	{name: "bitbucket", shapes: []string{"ATBB{a:28,}", "ATCTT3xFfG{v:60,}"}},
	{name: "npm", shapes: []string{"~npm_{a:36,}"}},
	{name: "pypi", shapes: []string{"pypi-AgE{t:50,}"}},
	{name: "docker", shapes: []string{"dckr_pat_{t:20,}", "dckr_oat_{t:20,}"}},
	{name: "rubygems", shapes: []string{"rubygems_{x:48,}"}},
	{name: "clojars", shapes: []string{"~CLOJARS_{a:60,}"}},
	{name: "nuget", shapes: []string{"oy2{n:43}"}},
	{name: "artifactory", shapes: []string{"AKCp{a:69,}", "cmVmd{a:59,}"}},
	{name: "pulumi", shapes: []string{"pul-{x:40,}"}},
	{name: "terraform", shapes: []string{".atlasv1.{v:60,}"}, lead: lead{alnum, 14, 14}},
	{name: "infracost", shapes: []string{"ico-{a:32,}"}},
	{name: "octopus", shapes: []string{"API-{N:26}"}},
	{name: "harness", shapes: []string{"pat.{t:22}.{a:24}.{a:20}", "sat.{t:22}.{a:24}.{a:20}"}},
	{name: "prefect", shapes: []string{"pnu_{a:36,}", "pnb_{a:36,}"}},
	{name: "sonar", shapes: []string{"squ_{x:40}", "sqp_{x:40}", "sqa_{x:40}"}},
	{name: "sourcegraph", shapes: []string{"sgp_{X:16}_{X:40}", "sgp_local_{X:40}", "sgp_{X:40}"}},
	{name: "buildkite", shapes: []string{"bkua_{x:40}", "bkat_{x:40}"}},
	{name: "circleci", shapes: []string{"CCIPAT_{w:40,}", "CCIPRJ_{w:40,}"}},

	// Payments.
	{name: "stripe", shapes: []string{
		"sk_live_{a:10,}", "sk_test_{a:10,}", "sk_prod_{a:10,}", "rk_live_{a:10,}", "rk_test_{a:10,}",
		"rk_prod_{a:10,}", "whsec_{B:24,}",
	}},
	{name: "square", shapes: []string{"EAAA{t:22,60}", "sq0atp-{t:22,}", "sq0csp-{t:40,}"}, kind: random},
	{name: "paypal", shapes: []string{"access_token$production${n:16}${x:32}", "access_token$sandbox${n:16}${x:32}"}},
	{name: "plaid", shapes: []string{
		"access-sandbox-{X:8}-{X:4}-{X:4}-{X:4}-{X:12}", "access-development-{X:8}-{X:4}-{X:4}-{X:4}-{X:12}",
		"access-production-{X:8}-{X:4}-{X:4}-{X:4}-{X:12}",
	}},
	{name: "flutterwave", shapes: []string{"FLWSECK_TEST-{a:12,}", "FLWPUBK_TEST-{a:32,}", "FLWSECK-{a:32,}"}},
	{name: "easypost", shapes: []string{"EZAK{a:54,}", "EZTK{a:54,}"}},
	{name: "shippo", shapes: []string{"shippo_live_{X:40,}", "shippo_test_{X:40,}"}},
	{name: "duffel", shapes: []string{"duffel_test_{v:40,}", "duffel_live_{v:40,}"}},
	{name: "lob", shapes: []string{"live_pub_{X:31}", "test_pub_{X:31}", "live_{X:35}", "test_{X:35}"}},
	{name: "gocardless", shapes: []string{"live_{v:40,}"}, kind: random},
	{name: "shopify", shapes: []string{"shpat_{X:32,}", "shpca_{X:32,}", "shppa_{X:32,}", "shpss_{X:32,}"}},

	// Messaging.
	{name: "slack", shapes: []string{
		"xoxa-{t:8,}", "~xoxb-{t:8,}", "xoxo-{t:8,}", "~xoxp-{t:8,}", "xoxr-{t:8,}", "xoxs-{t:8,}", "~xoxe-{t:10,}",
		"~xapp-{d:1}-{t:10,}",
	}},
	{name: "slack-webhook", shapes: []string{
		"hooks.slack.com/services/^{b:20,}", "hooks.slack.com/workflows/^{b:20,}", "hooks.slack.com/triggers/^{b:20,}",
	}},
	{name: "discord-webhook", shapes: []string{
		"discord.com/api/webhooks/{d:15,}/^{t:50,}", "discordapp.com/api/webhooks/{d:15,}/^{t:50,}",
	}},
	{name: "teams-webhook", shapes: []string{".webhook.office.com/webhookb2/^{B:30,}@{B:20,}"}},
	{name: "telegram", shapes: []string{"{d:1}:A{t:34}"}, lead: lead{digit, 4, 15}},
	{name: "twilio", shapes: []string{"SK{X:32}"}},
	{name: "sendgrid", shapes: []string{"SG.{v:60,}"}},
	{name: "sendinblue", shapes: []string{"xkeysib-{x:64}-{a:16}", "xsmtpsib-{x:64}-{a:16}"}},
	{name: "mailgun", shapes: []string{"pubkey-{X:32}", "key-{X:32}"}},
	{name: "mailchimp", shapes: []string{"-us{d:1,2}"}, lead: lead{hexAny, 32, 32}},
	{name: "facebook", shapes: []string{"EAAM{a:90,}", "EAAC{a:90,}"}, kind: random},
	{name: "facebook-app", shapes: []string{"{d:2}|{t:27,40}", "{d:2}%{t:27,40}"}, lead: lead{digit, 13, 14}},

	// Services.
	{name: "1password", shapes: []string{
		"A3-{N:6}-{N:6}-{N:5}-{N:5}-{N:5}-{N:5}", "A3-{N:6}-{N:11}-{N:5}-{N:5}-{N:5}", "ops_eyJ{b:100,}",
	}},
	{name: "adobe", shapes: []string{"p8e-{a:32,}"}},
	{name: "age", shapes: []string{"AGE-SECRET-KEY-1{c:58}"}},
	{name: "airtable", shapes: []string{
		"{q:1}^pat{a:14}.{x:64}", `\n^pat{a:14}.{x:64}`, `\r^pat{a:14}.{x:64}`, `\t^pat{a:14}.{x:64}`,
	}},
	{name: "atlassian", shapes: []string{"ATATT3{v:100,}"}},
	{name: "authress", shapes: []string{".acc_{t:10,32}.{B:30,}", ".acc-{t:10,32}.{B:30,}"}, lead: lead{tilde, 13, 45}},
	{name: "clickhouse", shapes: []string{"4b1d{a:38}"}, kind: random},
	{name: "databricks", shapes: []string{"dapi{x:32,}-{d:1}", "dapi{x:32,}"}},
	{name: "defined-networking", shapes: []string{"~dnkey-{v:70,}"}},
	{name: "doppler", shapes: []string{
		"dp.pt.{a:40,}", "dp.st.{v:40,}", "dp.ct.{a:40,}", "dp.sa.{a:40,}", "dp.scim.{a:40,}", "dp.audit.{a:40,}",
	}},
	{name: "dynatrace", shapes: []string{"dt0c01.{a:24}.{a:64,}", "dt0s01.{a:8,}.{a:64,}"}},
	{name: "figma", shapes: []string{"figd_{t:40,}"}},
	{name: "frameio", shapes: []string{"fio-u-{v:60,}"}},
	{name: "grafana", shapes: []string{"~glc_{b:32,}", "~glsa_{a:32}_{X:8}", "eyJrIjoi{b:60,}", "~eyJrIjoi{b:70,}"}},
	{name: "intra42", shapes: []string{"s-s4t2ud-{X:64}", "s-s4t2af-{X:64}"}},
	{name: "linear", shapes: []string{"lin_api_{a:32,}", "lin_oauth_{a:32,}"}},
	{name: "mapbox", shapes: []string{"sk.eyJ{t:40,}.{t:20,}", "pk.{t:60,}.{t:22,}"}},
	{name: "maxmind", shapes: []string{"_mmk"}, lead: lead{word, 36, 36}},
	{name: "newrelic", shapes: []string{"~NRAK-{a:27}", "~NRJS-{X:19}", "~NRII-{t:32}", "NRRA-{x:42}"}},
	{name: "notion", shapes: []string{"ntn_{a:40,}", "secret_{a:43}"}, kind: random},
	{name: "openshift", shapes: []string{"sha256~{t:43}"}},
	{name: "planetscale", shapes: []string{"~pscale_tkn_{v:32,}", "~pscale_oauth_{v:32,}", "~pscale_pw_{v:32,}"}},
	{name: "postman", shapes: []string{"PMAK-{X:24}-{X:34}"}},
	{name: "readme", shapes: []string{"rdme_{n:60,}"}},
	{name: "sentry", shapes: []string{"sntrys_{B:40,}", "sntryu_{x:64}"}},
	{name: "settlemint", shapes: []string{"sm_aat_{a:16,}", "sm_pat_{a:16,}", "sm_sat_{a:16,}"}},
	{name: "supabase", shapes: []string{"sbp_{x:40,}", "sb_secret_{t:20,}"}},
	{name: "typeform", shapes: []string{"tfp_{v:40,}"}},
	{name: "vault", shapes: []string{
		"hvs.{t:24,}", "hvb.{t:24,}", "hvr.{t:24,}", "{q:1}^s.{a:24}", `\n^s.{a:24}`, `\r^s.{a:24}`, `\t^s.{a:24}`,
		`\t^s.{a:24}`,
	}, kind: random},
	{name: "posthog", shapes: []string{"phx_{a:40,}"}},
	{name: "resend", shapes: []string{"re_{w:30,}"}, kind: random},
	{name: "contentful", shapes: []string{"CFPAT-{t:40,}"}},
	{name: "asana", shapes: []string{"{d:1}/{d:16}:{x:32}"}},
	{name: "dropbox", shapes: []string{"sl.{v:130,}"}, kind: random},
	{name: "okta", shapes: []string{"SSWS ^{t:40,}"}},

	// Containers of secrets.
	{name: "private-key", shapes: []string{"-BEGIN"}, kind: privateKey},
	{name: "url-password", shapes: []string{"{a:1}://"}, kind: userinfo},
	{name: "jwt", shapes: []string{".ey{u:17,}"}, kind: jwt},
	{name: "base64", kind: encoded},
	{name: "jwt-base64", shapes: []string{"ZXlK{B:40,}"}},
	{name: "authorization", shapes: []string{"~bearer ", "~basic "}, kind: scheme},
	{name: "curl-user", shapes: []string{" -u{f:1}", " --user{f:1}"}, kind: account},

	// Names of secrets.
	{name: "password", shapes: []string{"~password", "~passwd", "~passphrase", "~pwd{f:1}"}, kind: password},
	{name: "secret", shapes: []string{
		"~secret", "~token", "~apikey", "~api_key", "~api-key", "~credential", "~creds",
	}, kind: secret},
	{name: "key", shapes: []string{"~key{f:1}", "~auth", "~access", "~api{f:1}"}, kind: key},
	{name: "vendor", shapes: vendors, kind: vendor},
}

// vendors issue keys without a recognizable shape. Their variables usually carry the vendor's name.
var vendors = []string{
	"~adafruit", "~adobe", "~airtable", "~algolia", "~alibaba", "~asana", "~atlassian", "~beamer", "~bitbucket",
	"~bittrex", "~cloudflare", "~codecov", "~cohere", "~coinbase", "~confluence", "~confluent", "~contentful",
	"~datadog", "~discord", "~droneci", "~dropbox", "~etsy", "~facebook", "~fastly", "~finicity", "~finnhub", "~flickr",
	"~freshbooks", "~gitter", "~gocardless", "~heroku", "~hubspot", "~intercom", "~jfrog", "~artifactory", "~bintray",
	"~xray", "~jira", "~kraken", "~kucoin", "~launchdarkly", "~linear", "~linked", "~looker", "~mailchimp", "~mailgun",
	"~mapbox", "~mattermost", "~meraki", "~messagebird", "~message_bird", "~message-bird", "~netlify", "~newrelic",
	"~new-relic", "~new_relic", "~nytimes", "~newyorktimes", "~new-york-times", "~okta", "~plaid", "~privateai",
	"~private_ai", "~private-ai", "~rapidapi", "~sendbird", "~sentry", "~snyk", "~sonar", "~squarespace", "~sumo",
	"~telegr", "~travis", "~twilio", "~twitch", "~twitter", "~typeform", "~yandex", "~zendesk", "~contribsys",
}
