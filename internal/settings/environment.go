package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/internal/nearest"
	"github.com/deploy-ssh/deploy-ssh/internal/schema"
)

// The environment variables that the program reads.
const (
	KeyKey    = "DEPLOY_SSH_KEY"
	KeyUser   = "DEPLOY_SSH_USER"
	KeyNodes  = "DEPLOY_SSH_NODES"
	KeyConfig = "DEPLOY_SSH_CONFIG"
)

const keyPrefix = "DEPLOY_SSH_"

// Key is a declared environment variable.
type Key struct {
	Name string
	// Value names the kind of value, such as PATH.
	Value string
	// Meaning is one sentence for help and documentation, from nix/schema.json.
	Meaning string
	// read takes the value, which is not empty, into the environment.
	read func(*Environment, string) []Problem
}

// Keys are all environment variables that the program reads (FR-012), in the
// order of the documentation. A variable that begins with DEPLOY_SSH_ and
// isn't here is an error; an empty one is as good as none.
//
// Reading, help, the README and, by $defs.variables of nix/schema.json, what
// front-ends see are made from this table or tested against it.
var Keys = []Key{
	key(KeyKey, "PATH", func(env *Environment, value string) []Problem {
		env.Key = value
		return problem(KeyKey, CheckKey(value))
	}),
	key(KeyUser, "USER", func(env *Environment, value string) []Problem {
		env.User = value
		return problem(KeyUser, CheckUser(value))
	}),
	key(KeyNodes, "JSON", (*Environment).readNodes),
	key(KeyConfig, "PATH", func(env *Environment, value string) []Problem {
		env.Config = value
		return nil
	}),
}

func key(name, value string, read func(*Environment, string) []Problem) Key {
	return Key{Name: name, Value: value, Meaning: schema.Variable(name), read: read}
}

// Markdown is the table of the declared variables for the README.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| variable | |\n|---|---|\n")
	for _, k := range Keys {
		fmt.Fprintf(&b, "| `%s=%s` | %s |\n", k.Name, k.Value, k.Meaning)
	}
	return b.String()
}

// Environment is what the declared variables say.
type Environment struct {
	// User, Key and Config are "" when unset or empty.
	User, Key, Config string
	// Defaults and Nodes are those of DEPLOY_SSH_NODES; Nodes may be nil.
	Defaults SSH
	Nodes    map[string]SSH
}

// ParseEnvironment reads the declared variables from an environment as of
// [os.Environ]. The error is an [*Error] with all problems at once.
func ParseEnvironment(environ []string) (Environment, error) {
	var names, ends []string
	for _, k := range Keys {
		names = append(names, k.Name)
		ends = append(ends, strings.TrimPrefix(k.Name, keyPrefix))
	}
	values := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, keyPrefix) {
			values[name] = value
		}
	}
	var env Environment
	var problems, unknown []Problem
	for _, k := range Keys {
		if value := values[k.Name]; value != "" {
			problems = append(problems, k.read(&env, value)...)
		}
		delete(values, k.Name)
	}
	for name := range values {
		hint := ""
		// The common beginning would make everything near.
		if end := nearest.Word(strings.TrimPrefix(name, keyPrefix), ends); end != "" {
			hint = fmt.Sprintf("; did you mean %q?", keyPrefix+end)
		}
		unknown = append(unknown, Problem{Source: name, Text: fmt.Sprintf("unknown variable%s (known: %s)", hint, strings.Join(names, ", "))})
	}
	sort.Slice(unknown, func(i, j int) bool { return unknown[i].Source < unknown[j].Source })
	if err := Err(append(unknown, problems...)); err != nil {
		return Environment{}, err
	}
	return env, nil
}

func problem(source string, err error) []Problem {
	if err == nil {
		return nil
	}
	return []Problem{{Source: source, Text: err.Error()}}
}

func (env *Environment) readNodes(text string) []Problem {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	found, err := schema.Check(schema.Environment, []byte(text))
	if err != nil && !strings.Contains(text, "{") {
		return problem(KeyNodes, errors.New("this is no JSON; wanted the map itself, {…}, not the name of a file"))
	}
	if err != nil {
		return problem(KeyNodes, err)
	}
	if len(found) > 0 {
		return Problems(KeyNodes, found)
	}
	var document struct {
		Defaults SSH            `json:"defaults"`
		Nodes    map[string]SSH `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return problem(KeyNodes, err)
	}
	env.Defaults, env.Nodes = document.Defaults, document.Nodes
	return nil
}

// Problems turns findings of the schema into problems of a layer. Where the
// rule is known here too, the more exact words of this package are taken.
func Problems(source string, found []schema.Problem) []Problem {
	problems := make([]Problem, 0, len(found))
	for _, f := range found {
		p := Problem{Source: source, Path: schema.Location(f.Path), Text: f.Text}
		if text, ok := f.Value.(string); ok {
			if err := check(f.Rule, text); err != nil {
				p.Text = err.Error()
			}
		}
		if (f.Rule == "shared" || f.Rule == "environmentDefaults") && len(f.Path) > 0 && f.Path[len(f.Path)-1] == "hostKey" {
			p.Text = "a pinned host key belongs to one node; move it to the node's entry"
		}
		problems = append(problems, p)
	}
	return problems
}

func check(rule, value string) error {
	switch rule {
	case "option":
		return CheckOption(value)
	case "host":
		return CheckHost(value)
	case "user":
		return CheckUser(value)
	case "key":
		return CheckKey(value)
	case "hostKey":
		_, err := ParseHostKeys(value)
		return err
	case "unit":
		return CheckUnit(value)
	case "machineId":
		return checkMachineID(value)
	}
	return nil
}
