package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/deploy-ssh/deploy-ssh/nix"
)

// object is a JSON object that keeps the order of its keys: the reference goes
// by the order of nix/schema.json.
type object struct {
	keys   []string
	values map[string]json.RawMessage
}

func (o *object) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &o.values); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		o.keys = append(o.keys, key.(string))
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	return nil
}

// shape is what the reference takes from an entry of the schema.
type shape struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	Pattern     string `json:"pattern"`
	Ref         string `json:"$ref"`
	Type        any    `json:"type"`
	ReadOnly    bool   `json:"readOnly"`
	Properties  object `json:"properties"`
	Items       *shape `json:"items"`
}

func (s shape) refers() string { return strings.TrimPrefix(s.Ref, "#/$defs/") }

// schemaDefs are the entries of nix/schema.json, in its order.
func schemaDefs() (names []string, defs map[string]shape) {
	var root struct {
		Defs object `json:"$defs"`
	}
	if err := json.Unmarshal(nix.Schema, &root); err != nil {
		panic("nix/schema.json: " + err.Error())
	}
	defs = map[string]shape{}
	for name, raw := range root.Defs.values {
		defs[name] = readShape(raw)
	}
	return root.Defs.keys, defs
}

func readShape(raw json.RawMessage) shape {
	var s shape
	if err := json.Unmarshal(raw, &s); err != nil {
		panic(fmt.Sprintf("nix/schema.json: %.60s: %v", raw, err))
	}
	return s
}

// meaningOf is what a field is for, or else what its values are.
func meaningOf(defs map[string]shape, field shape) string {
	if field.Description != "" {
		return field.Description
	}
	return defs[field.refers()].Description
}

const nodeMapIntro = notice + `# The node map

What ` + "`deploy-ssh .#nodes`" + ` reads: an attribute of a flake. It is

- a list of nodes, deployed in its order;
- an attribute set of nodes by name, deployed by name;
- or a set with ` + "`nodes`" + ` (either of the two) and, beside it, ` + "`defaults` and `order`" + `.

` + "```nix" + `
{
  defaults.ssh = { user = "deploy"; key = "/home/ann/.ssh/deploy"; };
  defaults.elevate = "sudo";
  nodes = [
    {
      name = "db";
      host = "10.0.0.2";
      toplevel = self.nixosConfigurations.db;
      tags = [ "eu" "data" ];
      ssh.hostKey = builtins.readFile ./db.pub;
      expect.hostName = "db";
    }
    {
      name = "web";
      host = "web.example.org";
      toplevel = self.nixosConfigurations.web;
      tags = [ "eu" ];
      ssh.options = [ "Port=2222" "ProxyJump=gw.example.org" ];
      ignoreUnits = [ "backup-*" ];
    }
  ];
}
` + "```" + `

A field that is absent, null or empty inherits the layer below: built-in values, then
` + "`defaults`" + `, then the node's entry; ` + "[`DEPLOY_SSH_NODES`](environment.md)" + ` lies over both. An
unknown field is an error that names the nearest one. ` + "`deploy-ssh schema`" + ` prints the
JSON Schema that this page is made from, and ` + "`deploy-ssh explain`" + ` each value with its origin.
`

// nodeMap is the reference of the node map, from the schema.
func nodeMap() string {
	names, defs := schemaDefs()
	var b strings.Builder
	b.WriteString(nodeMapIntro)
	section := func(title, def, text string) {
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		if text != "" {
			b.WriteString(text + "\n\n")
		}
		b.WriteString(fieldTable(defs, defs[def].Properties))
	}
	section("The map", "contract", "")
	fmt.Fprintf(&b, "\n## defaults\n\n%s", fieldTable(defs, readShape(defs["contract"].Properties.values["defaults"]).Properties))
	section("A node", "node", "A NixOS configuration by itself is a node, too, in an attribute set.")
	section("ssh of a node", "entry", "")
	section("ssh of defaults", "shared", "A pinned host key is a node's own, so it can't be shared.")
	section("expect", "expect", "Nothing is written to a host that is another one, and its verdict is `wrong-host`.")
	section("Environment map", "environment", "The value of `DEPLOY_SSH_NODES`, as JSON: the fields of `ssh` without `ssh` around them, and `elevate`.")
	section("Environment defaults", "environmentDefaults", "")
	section("Environment entry", "environmentEntry", "")

	b.WriteString("\n## Values\n")
	for _, name := range names {
		def := defs[name]
		if def.Properties.keys != nil || def.Description == "" || name == "text" {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", name, plain(sentence(def.Description)))
		if name == "option" {
			b.WriteString("\nSome keywords can't be set: see [options of ssh that are refused](ssh-refused.md).\n")
		}
		if p := def.Pattern; p != "" && len(p) < 80 && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", p)
		}
	}
	return b.String()
}

// places are the sections of the entries that are objects.
var places = map[string]string{
	"entry": "ssh-of-a-node", "shared": "ssh-of-defaults", "expect": "expect", "node": "a-node", "environment": "environment-map",
	"environmentDefaults": "environment-defaults", "environmentEntry": "environment-entry",
}

func fieldTable(defs map[string]shape, fields object) string {
	var rows [][]string
	for _, name := range fields.keys {
		field := readShape(fields.values[name])
		if field.ReadOnly {
			continue
		}
		rows = append(rows, []string{code(name), kindOf(defs, name, field), plain(sentence(meaningOf(defs, field)))})
	}
	return table([]string{"field", "value", "meaning"}, rows)
}

// kindOf names, with a link, what a field holds.
func kindOf(defs map[string]shape, name string, s shape) string {
	ref := s.refers()
	if ref == "options" {
		s, ref = defs["options"], ""
	}
	switch place, isObject := places[ref]; {
	case isObject:
		return fmt.Sprintf("[set](#%s)", place)
	case ref != "":
		return fmt.Sprintf("[%s](#%s)", ref, strings.ToLower(ref))
	case s.Items != nil && s.Items.refers() == "node":
		return "[nodes](#a-node)"
	case s.Items != nil:
		return fmt.Sprintf("list of [%s](#%s)", s.Items.refers(), strings.ToLower(s.Items.refers()))
	case name == "defaults":
		return "[set](#defaults)"
	case name == "toplevel":
		return "system"
	}
	if types, ok := s.Type.([]any); ok && slices.Contains(types, any("object")) {
		return "set"
	}
	return fmt.Sprint(s.Type)
}
