package segment_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A corpus is prompts of the kind that companies write, by family: each with gaps that a program fills anew for every
// call.
type corpus struct {
	names     []string
	templates []string
}

func readCorpus(tb testing.TB) corpus {
	tb.Helper()
	text, err := os.ReadFile("testdata/templates.txt")
	if err != nil {
		tb.Fatal(err)
	}
	var c corpus
	for part := range strings.SplitSeq("\n"+string(text), "\n# ") {
		if name, template, ok := strings.Cut(part, "\n"); ok && name != "" {
			c.names, c.templates = append(c.names, name), append(c.templates, strings.TrimSpace(template))
		}
	}
	return c
}

// A prompt is one call's system prompt, and the family that it should be found to be of.
type prompt struct {
	family string
	text   string
}

// prompts is so many of each family, gaps filled, every other one lightly edited, in random order.
func (c corpus) prompts(r *rand.Rand, each int) []prompt {
	var all []prompt
	for i, template := range c.templates {
		for j := range each {
			edited := template
			if j%2 == 1 {
				edited = edit(r, edited)
			}
			all = append(all, prompt{c.names[i], fill(r, edited)})
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

var gaps = regexp.MustCompile(`\{[a-z]+\}`)

func fill(r *rand.Rand, template string) string {
	return gaps.ReplaceAllStringFunc(template, func(gap string) string {
		value, ok := values[gap]
		if !ok {
			panic("no values for " + gap)
		}
		return value(r)
	})
}

func one(r *rand.Rand, of string) string {
	all := strings.Split(of, "|")
	return all[r.IntN(len(all))]
}

func when(r *rand.Rand) time.Time { return time.Unix(1_700_000_000+r.Int64N(200_000_000), 0).UTC() }

var values = map[string]func(r *rand.Rand) string{
	"{name}": func(r *rand.Rand) string {
		first := one(r, "Alice|Bob|Chloé|Dmitri|Erin|Fatima|George|Hana|Igor|Jana|Kofi|Lena|Müge|Noah|Olga|Priya|Quentin|Rosa|Sven|Tariq")
		if r.IntN(2) == 0 {
			return first
		}
		return first + " " + one(r, "Smith|Okafor|García Lopez|van der Berg|Nakamura|O'Neil|Schulze-Witt|Rossi|Novak|Lindqvist")
	},
	"{company}": func(r *rand.Rand) string {
		return one(r, "Acme|Northwind Traders|Globex Corporation|Initech|Contoso Ltd.|Hooli|Umbrella Health|Blue Harbor Logistics|Stadtwerke Ulm|Öresund Energi AB")
	},
	"{bot}": func(r *rand.Rand) string { return one(r, "Ava|Max|Otto|Nova|Sam the Helper|Mia") },
	"{role}": func(r *rand.Rand) string {
		return one(r, "head of sales|accountant|CTO|team lead, logistics|intern|VP Engineering")
	},
	"{city}": func(r *rand.Rand) string {
		return one(r, "Berlin|Lyon|New York|São Paulo|Frankfurt am Main|Osaka|Leeds")
	},
	"{repo}": func(r *rand.Rand) string {
		return one(r, "acme/api|acme/web-shop|northwind/ledger|core|platform/infra")
	},
	"{course}": func(r *rand.Rand) string {
		return one(r, "Statistics I|Weekly sync|Q3 planning|Organic chemistry|Roadmap review|World history")
	},
	"{language}": func(r *rand.Rand) string {
		return one(r, "German|French|Japanese|English|Brazilian Portuguese|Python|Go|TypeScript|Simplified Chinese")
	},
	"{date}": func(r *rand.Rand) string {
		return when(r).Format(one(r, "2006-01-02|2 January 2006|January 2, 2006|Monday, 2 January 2006|02.01.2006|01/02/2006|Mon, 02 Jan 2006"))
	},
	"{time}": func(r *rand.Rand) string {
		return when(r).Format(one(r, "2006-01-02T15:04:05Z|2006-01-02 15:04|Monday, January 2, 2006 3:04 PM|Mon Jan 2 15:04:05 UTC 2006"))
	},
	"{id}": func(r *rand.Rand) string {
		switch r.IntN(4) {
		case 0:
			return strconv.Itoa(r.IntN(1_000_000))
		case 1:
			return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<12), r.Int64N(1<<48))
		case 2:
			return fmt.Sprintf("ORD-%05d", r.IntN(100_000))
		}
		return fmt.Sprintf("%016x", r.Uint64())
	},
	"{number}": func(r *rand.Rand) string { return one(r, "3|5|12|50|120|1,500|2.5|2099|100") },
	"{email}": func(r *rand.Rand) string {
		return one(r, "alice|bob.smith|j.doe+test|office") + "@" + one(r, "example.com|mail.example.org|firma.de")
	},
	"{url}": func(r *rand.Rand) string {
		return one(r, "https://|http://www.|https://help.") + one(r, "example.com|acme.io|firma.de") + one(r, "|/help|/faq?lang=en&x=1|/a/b/c#top")
	},
	"{docs}": func(r *rand.Rand) string {
		var b strings.Builder
		for i := range 1 + r.IntN(5) {
			fmt.Fprintf(&b, "[%d] %s\n", i+1, prose(r, 30+r.IntN(150)))
		}
		return b.String()
	},
	"{profile}": func(r *rand.Rand) string {
		var b strings.Builder
		for _, key := range []string{"Name", "Goals", "Last week", "Notes", "Preferences"} {
			fmt.Fprintf(&b, "%s: %s\n", key, prose(r, 2+r.IntN(12)))
		}
		return b.String()
	},
	"{schema}": func(r *rand.Rand) string {
		var b strings.Builder
		for range 3 + r.IntN(6) {
			fmt.Fprintf(&b, "%s(%s)\n", prose(r, 1), strings.ReplaceAll(prose(r, 3+r.IntN(5)), " ", ", "))
		}
		return b.String()
	},
	"{tools}": func(r *rand.Rand) string { return strings.ReplaceAll(prose(r, 4+r.IntN(12)), " ", ", ") },
	"{examples}": func(r *rand.Rand) string {
		var b strings.Builder
		for range 2 + r.IntN(3) {
			fmt.Fprintf(&b, "%s -> %s.%s()\n", prose(r, 4+r.IntN(6)), prose(r, 1), prose(r, 1))
		}
		return b.String()
	},
}

const common = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all her she there would their we him been has when who will no more if out so up said what its about than into them can only other time new some could these two may first then do any like my now over such our man me even most made after also did many off before must well back through years much where your way down should because long each just state those people too mr how little good world make very year still see own work men day get here between both life being under three never know same last another while us might great go come since against right came take used himself few house use during without again place around however home small found mrs thought went say part once general high upon school every don't does got united left number course war until always away something fact water though less public put think almost hand enough far took head yet government system better set told nothing night end why called didn't eyes find going look asked later knew point next program city business give group toward days young let room within white children side given order national word early"

const rare = "ledger turbine invoice harbour contract polymer voltage archive pension shipment enzyme valve quarter tariff sensor audit lattice parcel pigment clinic orchard freight rotor charter museum cotton ferry granite statute auction copper tunnel vaccine census poultry glacier warrant fabric pension mortgage satellite violin manuscript dialect harvest furnace reservoir membrane merger treaty cathedral algorithm sediment catalyst bishop peninsula locomotive antenna emulsion quarry"

// prose is so many words, common ones and rarer ones.
func prose(r *rand.Rand, words int) string {
	often, seldom := strings.Fields(common), strings.Fields(rare)
	var b strings.Builder
	for i := range words {
		if i > 0 {
			b.WriteString(one(r, " | | | | | | | |, |. "))
		}
		if r.IntN(3) == 0 {
			b.WriteString(seldom[r.IntN(len(seldom))])
		} else {
			b.WriteString(often[min(r.IntN(len(often)), r.IntN(len(often)))])
		}
	}
	return b.String()
}

// edit is what happens to a prompt from one release of a program to the next.
func edit(r *rand.Rand, text string) string {
	sentences := strings.SplitAfter(text, ". ")
	at := r.IntN(len(sentences))
	switch r.IntN(5) {
	case 0:
		return strings.Join(append(sentences[:at:at], append([]string{one(r, "Be concise. |Think before you answer. |Never apologise. |Use plain words. ")}, sentences[at:]...)...), "")
	case 1:
		if len(sentences) > 4 && !strings.Contains(sentences[at], "\n") {
			return strings.Join(append(sentences[:at:at], sentences[at+1:]...), "")
		}
	case 2:
		return strings.NewReplacer(" do not ", " don't ", " Never ", " Do not ever ", " answer ", " reply ", " only ", " just ").Replace(text)
	case 3:
		return strings.NewReplacer(". ", ".\n", "- ", "* ", ": ", " – ").Replace(text)
	}
	return strings.ReplaceAll(text, "\n\n", "\n")
}
