package recall

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"

	"sovereign/internal/text/redact"
)

// samples is how many secrets are made for each rule, and tries how often one is drawn that gitleaks itself takes.
const (
	samples = 20
	tries   = 4000
)

// files are the names that some rules want a text to come from.
var files = map[string]string{
	"freemius-secret-key": "a.php", "hashicorp-tf-password": "a.tf", "kubernetes-secret-yaml": "a.yaml", "nuget-config-password": "nuget.config",
}

func TestRedactionFindsWhatGitleaksFinds(t *testing.T) {
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	rules, found, all, gone := 0, 0, 0, 0
	for _, id := range slices.Sorted(maps.Keys(detector.Config.Rules)) {
		rule := detector.Config.Rules[id]
		if rule.Regex == nil {
			continue // it goes by the name of a file
		}
		made := secrets(t, detector, rule)
		if len(made) == 0 {
			t.Errorf("%s: no sample that gitleaks takes itself", id)
			continue
		}
		rules++
		var left []string
		for _, m := range made {
			if trace := survives(m.text, m.secret); trace != "" {
				left = append(left, trace)
			}
		}
		all += len(made)
		gone += len(made) - len(left)
		reason, listed := missed[id]
		switch {
		case len(left) == 0 && !listed:
			found++
		case len(left) == 0:
			found++
			t.Errorf("%s is listed as missed (%s), and is found", id, reason)
		case !listed:
			t.Errorf("%s: %d of %d are left, such as %s", id, len(left), len(made), left[0])
		}
	}
	fmt.Printf("rules: %d of %d (%.1f%%); samples: %d of %d (%.1f%%)\n", found, rules, 100*float64(found)/float64(rules), gone, all, 100*float64(gone)/float64(all))
	for id := range missed {
		if _, ok := detector.Config.Rules[id]; !ok {
			t.Errorf("%s is listed as missed, and is no rule", id)
		}
	}
}

// A planted is a text with a secret that gitleaks found in it.
type planted struct{ text, secret string }

func secrets(t *testing.T, detector *detect.Detector, rule config.Rule) []planted {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var made []planted
	for range tries {
		text, err := sample(rule.Regex.String(), rng)
		if err != nil {
			t.Fatalf("%s: %v", rule.RuleID, err)
		}
		if rule.RuleID == "private-key" {
			text = block(rng)
		}
		if lower := strings.ToLower(text); len(rule.Keywords) > 0 && !slices.ContainsFunc(rule.Keywords, func(k string) bool { return strings.Contains(lower, k) }) {
			text = rule.Keywords[0] + " " + text
		}
		text = "\n" + text // as one line of more
		for _, f := range detector.Detect(detect.Fragment{Raw: text, FilePath: files[rule.RuleID]}) {
			if f.RuleID == rule.RuleID {
				made = append(made, planted{text, f.Secret})
				break
			}
		}
		if len(made) == samples {
			break
		}
	}
	return made
}

// survives is where a secret, or a half of it, is left of a text: by itself, in JSON, or in JSON within JSON.
func survives(text, secret string) string {
	one, _ := json.Marshal([]map[string]string{{"role": "user", "content": text}})
	two, _ := json.Marshal(map[string]string{"arguments": string(one)})
	clean, _ := redact.Text([]byte(text))
	if left(string(clean), secret) {
		return fmt.Sprintf("%q of %q", secret, text)
	}
	clean, _ = redact.JSON(one)
	var content []map[string]string
	if err := json.Unmarshal(clean, &content); err != nil || left(content[0]["content"], secret) {
		return fmt.Sprintf("%q of JSON %s", secret, one)
	}
	clean, _ = redact.JSON(two)
	var arguments map[string]string
	if err := json.Unmarshal(clean, &arguments); err != nil || json.Unmarshal([]byte(arguments["arguments"]), &content) != nil || left(content[0]["content"], secret) {
		return fmt.Sprintf("%q of JSON within JSON %s", secret, two)
	}
	return ""
}

func left(text, secret string) bool {
	half := (len(secret) + 1) / 2
	return strings.Contains(text, secret[:half]) || strings.Contains(text, secret[len(secret)-half:])
}

// block is a private key in PEM: the expression for it allows any text between two lines.
func block(rng *rand.Rand) string {
	kinds := []string{"RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "DSA PRIVATE KEY"}
	bytes := make([]byte, 60+rng.IntN(1000))
	for i := range bytes {
		bytes[i] = byte(rng.Uint32())
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kinds[rng.IntN(len(kinds))], Bytes: bytes}))
}
