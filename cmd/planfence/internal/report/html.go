package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"clean": clean, "none": none, "join": func(l []string) string { return strings.Join(cleanAll(l), ", ") },
	"command": func(l []string) string { return clean(strings.Join(l, " ")) },
	"when":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	"plural":  func(n int, one, many string) string { return count(uint64(n), one, many) },
}).Parse(pageText))

// HTML renders the report as one page that needs nothing else: no script, no
// font, no picture from elsewhere.
func (r *Report) HTML(w io.Writer) error {
	v := view{Report: r}
	for _, s := range r.Sessions {
		v.Lanes = append(v.Lanes, s.lane(r))
	}
	if len(r.Paths) > htmlPaths {
		v.Shown, v.More = r.Paths[:htmlPaths], len(r.Paths)-htmlPaths+r.Truncated
	} else {
		v.Shown, v.More = r.Paths, r.Truncated
	}
	if len(r.Paths) > 0 {
		v.Most = float64(r.Paths[0].Count + r.Paths[0].Would)
	}
	v.Outside = r.changes()
	if err := page.Execute(w, v); err != nil {
		return fmt.Errorf("render the page: %w", err)
	}
	return nil
}

// htmlPaths is how many paths the page lists.
const htmlPaths = 200

type view struct {
	*Report
	Lanes   []lane
	Shown   []*Path
	More    int
	Most    float64
	Outside []*Change
}

// Share is a count as a part of the longest bar, in percent.
func (v view) Share(n uint64) string {
	if v.Most == 0 {
		return "0%"
	}
	return percent(100 * float64(n) / v.Most)
}

// lane is one session's row of the timeline; places are percentages.
type lane struct {
	*Session
	Bars    []bar
	Bins    []bin
	Dots    []dot
	Commits []dot
}

type bar struct {
	Left, Width, Task, Name, Title string
	Wide                           bool // the name has room
}

type bin struct{ Left, Height, Title string }

type dot struct{ Left, Kind, Title string }

// bins is how many columns a lane's refusals are gathered in.
const bins = 150

func (s *Session) lane(r *Report) lane {
	l := lane{Session: s}
	total := s.End.Sub(s.Start).Seconds()
	if total <= 0 {
		total = 1
	}
	at := func(t time.Time) float64 { return min(100, max(0, 100*t.Sub(s.Start).Seconds()/total)) }
	for _, st := range s.Stretches {
		left := at(st.Start)
		width := at(st.End) - left
		l.Bars = append(l.Bars, bar{percent(left), percent(max(width, 0.15)), st.Task, none(st.Task),
			fmt.Sprintf("task %s, %s, from %s", none(st.Task), Seconds(st.End.Sub(st.Start)), st.Start.UTC().Format("15:04:05Z")), width > 2+float64(len(st.Task))})
	}
	var cols [bins]uint64
	var most uint64
	for sec, n := range s.bins {
		i := min(bins-1, max(0, int(at(time.Unix(sec, 0))*bins/100)))
		cols[i] += n
		most = max(most, cols[i])
	}
	for i, n := range cols {
		if n > 0 {
			// By logarithm: one refusal is seen beside a flood.
			h := 20 + 80*math.Log1p(float64(n))/math.Log1p(float64(most))
			l.Bins = append(l.Bins, bin{percent(100 * float64(i) / bins), percent(h), count(n, "refusal", "refusals")})
		}
	}
	for _, m := range s.Marks {
		l.Dots = append(l.Dots, dot{percent(at(m.Time)), m.Kind, clean(m.Kind + ": " + m.Text)})
	}
	if r.Git != nil {
		for i := range r.Git.Commits {
			if c := &r.Git.Commits[i]; s.at(c.Time) != nil || s.at(c.Time.Add(time.Second-1)) != nil {
				l.Commits = append(l.Commits, dot{percent(at(c.Time)), "commit", clean("commit " + c.Short() + " " + c.Subject)})
			}
		}
	}
	return l
}

func percent(x float64) string { return fmt.Sprintf("%.2f%%", x) }

// hues is how many colours tasks have.
const hues = 8

// Hue is a task's colour, the same in every lane and table: by its place among
// the tasks, so that neighbours differ.
func (v view) Hue(task string) string {
	for i, t := range v.Tasks {
		if t.ID == task && task != "" {
			return fmt.Sprintf("h%d", i%hues)
		}
	}
	return "idle"
}
