package settings

import (
	"encoding/json"
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
	// Meaning is one sentence for help and documentation.
	Meaning string
}

// Keys are all environment variables that the program reads (FR-012).
// A variable that begins with DEPLOY_SSH_ and isn't here is an error.
var Keys = []Key{
	{KeyKey, "PATH", "private key file for nodes that name none; without it, the ssh agent"},
	{KeyUser, "USER", "login user for nodes that name none; without it, root"},
	{KeyNodes, "JSON", "SSH settings over those of the flake: {\"defaults\": {…}, \"nodes\": {NAME: {…}}}"},
	{KeyConfig, "PATH", "ssh client configuration that applies to every connection"},
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
	var env Environment
	var problems []Problem
	values := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, keyPrefix) {
			continue
		}
		if !declared(name) {
			problems = append(problems, Problem{Source: name, Text: "unknown variable" + nearest.Hint(name, keyNames()) +
				" (known: " + strings.Join(keyNames(), ", ") + ")"})
		}
		values[name] = value
	}
	sort.Slice(problems, func(i, j int) bool { return problems[i].Source < problems[j].Source })
	env.User, env.Key, env.Config = values[KeyUser], values[KeyKey], values[KeyConfig]
	for _, checked := range []struct {
		key string
		err error
	}{
		{KeyUser, CheckUser(env.User)},
		{KeyKey, CheckKey(env.Key)},
	} {
		if checked.err != nil {
			problems = append(problems, Problem{Source: checked.key, Text: checked.err.Error()})
		}
	}
	problems = append(problems, env.parseNodes(values[KeyNodes])...)
	if err := Err(problems); err != nil {
		return Environment{}, err
	}
	return env, nil
}

func (env *Environment) parseNodes(text string) []Problem {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	found, err := schema.Check(schema.Environment, []byte(text))
	if err != nil {
		return []Problem{{Source: KeyNodes, Text: err.Error()}}
	}
	if len(found) > 0 {
		return Problems(KeyNodes, found)
	}
	var document struct {
		Defaults SSH            `json:"defaults"`
		Nodes    map[string]SSH `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return []Problem{{Source: KeyNodes, Text: err.Error()}}
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
		if f.Rule == "shared" && len(f.Path) > 0 && f.Path[len(f.Path)-1] == "hostKey" {
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
	case "unit":
		return CheckUnit(value)
	}
	return nil
}

func declared(name string) bool {
	for _, k := range Keys {
		if k.Name == name {
			return true
		}
	}
	return false
}

func keyNames() []string {
	names := make([]string, len(Keys))
	for i, k := range Keys {
		names[i] = k.Name
	}
	return names
}
