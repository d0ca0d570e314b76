// Package sshworld plays the scenarios' world where there is no rig: the deployer
// is this machine, and the targets are reached over plain ssh, which has nothing
// to do with the program under test.
package sshworld

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
)

// World is a [scenario.World] as its file describes it. The deployer is this
// machine. Unknown fields are an error.
type World struct {
	// Flake, Program and ClientConfig are as in [scenario.World].
	Flake        string `json:"flake"`
	Program      string `json:"program"`
	ClientConfig string `json:"clientConfig"`
	// SSH is how the targets are reached to look at them.
	SSH Client `json:"ssh"`
	// Targets are in list order.
	Targets []Target `json:"targets"`
	// Baseline is null where there is none.
	Baseline *Target `json:"baseline"`
}

// Client is the ssh of the onlooker: it shares neither key nor saved host keys
// nor configuration with the program under test.
type Client struct {
	User string `json:"user"`
	// Key is the file of the private key.
	Key string `json:"key"`
	// KnownHosts is where the targets' host keys are saved at first sight.
	KnownHosts string `json:"knownHosts"`
}

// Target is a [scenario.Target].
type Target struct {
	Node string `json:"node"`
	Host string `json:"host"`
	Port int    `json:"port"`
	// ServerName, Page and Certificate are empty where nothing is served.
	ServerName  string `json:"serverName"`
	Page        string `json:"page"`
	Certificate string `json:"certificate"`
}

// Read reads and checks a description; see [Parse].
func Read(file string) (World, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return World{}, err
	}
	w, err := Parse(text)
	if err != nil {
		return World{}, fmt.Errorf("%s: %w", file, err)
	}
	return w, nil
}

// Parse reads a description and refuses one with gaps: a scenario that
// compares with an empty text may find it.
func Parse(text []byte) (World, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var w World
	if err := decoder.Decode(&w); err != nil {
		return World{}, err
	}
	if decoder.More() {
		return World{}, fmt.Errorf("there is more than one description")
	}
	given := map[string]string{
		"flake": w.Flake, "program": w.Program, "clientConfig": w.ClientConfig,
		"ssh.user": w.SSH.User, "ssh.key": w.SSH.Key, "ssh.knownHosts": w.SSH.KnownHosts,
	}
	add := func(at string, t Target) {
		given[at+".node"], given[at+".host"] = t.Node, t.Host
		// A target without a web server has none of these three.
		if t.ServerName != "" || t.Page != "" || t.Certificate != "" {
			given[at+".serverName"], given[at+".page"], given[at+".certificate"] = t.ServerName, t.Page, t.Certificate
		}
		if t.Port > 0 {
			given[at+".port"] = "given"
		} else {
			given[at+".port"] = ""
		}
	}
	for i, t := range w.Targets {
		add(fmt.Sprintf("targets[%d]", i), t)
	}
	if w.Baseline != nil {
		add("baseline", *w.Baseline)
	}
	for at, value := range given {
		if value == "" {
			return World{}, fmt.Errorf("%s is not given", at)
		}
	}
	if len(w.Targets) == 0 {
		return World{}, fmt.Errorf("there are no targets")
	}
	return w, nil
}

// Open makes the world to play in. No connection is made before a target is
// first used; hangUp closes all.
func (w World) Open() (opened scenario.World, hangUp func()) {
	opened = scenario.World{
		Deployer: local{}, Flake: w.Flake, Program: w.Program, ClientConfig: w.ClientConfig,
	}
	var all []*remote
	reach := func(t Target) scenario.Target {
		machine := &remote{client: w.SSH, host: t.Host, port: t.Port}
		all = append(all, machine)
		return scenario.Target{
			Machine: machine, Node: t.Node, Host: t.Host, Port: t.Port, ServerName: t.ServerName,
			Page: t.Page, Certificate: t.Certificate,
		}
	}
	for _, t := range w.Targets {
		opened.Targets = append(opened.Targets, reach(t))
	}
	if w.Baseline != nil {
		baseline := reach(*w.Baseline)
		opened.Baseline = &baseline
	}
	return opened, func() {
		for _, machine := range all {
			machine.hangUp()
		}
	}
}
