package peers

var (
	colmenaKind = []Tool{Colmena, Morph, Wire}
	colmenaWire = []Tool{Colmena, Wire}
	deployRS    = []Tool{DeployRS}
	colmena     = []Tool{Colmena}
	morph       = []Tool{Morph}
	wire        = []Tool{Wire}
	rebuild     = []Tool{NixosRebuild}
)

const (
	noPrompt  = "there is no prompt; give the user a rule that needs no password"
	noSecrets = "no secrets are uploaded; keep them encrypted in the system (agenix, sops-nix)"
	firstKeys = "host keys are trusted on first use, and exclusively where ssh.hostKey pins them"
	onTarget  = "a flag, for all nodes"
	builders  = "builds run where Nix runs them, here or on the machines of its builders setting; with --build-on-target on each host"
)

// In each kind, what most people have comes first.
var table = []Row{
	{Kind: Field, Tools: colmenaKind, In: "deployment", Theirs: "targetHost", Ours: "host"},
	{Kind: Field, Tools: colmenaKind, In: "deployment", Theirs: "targetUser", Ours: "ssh.user"},
	{Kind: Field, Tools: colmenaKind, In: "deployment", Theirs: "targetPort", Ours: `ssh.options = [ "Port=…" ]`, Note: "the port is an option"},
	{Kind: Field, Tools: colmenaKind, In: "deployment", Theirs: "tags", Ours: "tags", Shared: true},
	{Kind: Field, Tools: colmenaWire, In: "deployment", Theirs: "sshOptions", Ours: "ssh.options", Note: "bare Key=Value items, without -o"},
	{Kind: Field, Tools: wire, In: "deployment", Theirs: "target", Ours: "host", Note: "and ssh.user; the port is an option, \"Port=…\"; a node has one host"},
	{Kind: Field, Tools: colmenaWire, In: "deployment", Theirs: "privilegeEscalationCommand", Ours: "elevate", Note: "\"sudo\" or \"doas\", which must need no password"},
	{Kind: Field, Tools: colmenaWire, In: "deployment", Theirs: "buildOnTarget", Ours: "--build-on-target", Note: onTarget},
	{Kind: Field, Tools: []Tool{Morph}, In: "deployment", Theirs: "substituteOnDestination", Ours: "--substitute-on-destination", Note: "a flag, for all nodes; it is the default"},
	{Kind: Field, Tools: colmenaWire, In: "deployment", Theirs: "allowLocalDeployment", Note: "every node is deployed over ssh, this machine too: give it a host and an sshd"},
	{Kind: Field, Tools: colmenaWire, In: "deployment", Theirs: "replaceUnknownProfiles", Note: "whoever deploys last wins; expect.machineId makes sure that it is the right host"},
	{Kind: Field, Tools: colmenaWire, In: "deployment", Theirs: "keys", Note: noSecrets},
	{Kind: Field, Tools: morph, In: "deployment", Theirs: "secrets", Note: noSecrets},
	{Kind: Field, Tools: morph, In: "deployment", Theirs: "healthChecks", Note: "units that fail and a fresh login are always checked; --confirm makes a host go back without one"},
	{Kind: Field, Tools: morph, In: "deployment", Theirs: "preDeployChecks", Note: "what would refuse a switch is looked for before it"},
	{Kind: Field, Tools: morph, In: "deployment", Theirs: "buildOnly", Ours: "--goal build", Note: "a flag; --exclude leaves the node out"},
	{Kind: Field, Tools: morph, In: "network", Theirs: "ordering", Ours: "order", Note: "beside `nodes`; a list has its own order", Shared: true},
	{Kind: Field, Tools: colmenaKind, Theirs: "deployment", Note: "its fields stand in the node itself: host, tags, ssh, elevate"},
	{Kind: Field, Tools: colmenaWire, Theirs: "meta", Note: "systems are made by nixpkgs.lib.nixosSystem, each with its own nixpkgs and specialArgs"},
	{Kind: Field, Tools: morph, Theirs: "network", Note: "systems are made by nixpkgs.lib.nixosSystem, each with its own nixpkgs"},

	{Kind: Field, Tools: deployRS, In: "nodes.NAME", Theirs: "hostname", Ours: "host"},
	{Kind: Field, Tools: deployRS, Theirs: "sshUser", Ours: "ssh.user"},
	{Kind: Field, Tools: deployRS, Theirs: "sshOpts", Ours: "ssh.options", Note: "bare Key=Value items: [ \"-p\" \"2222\" ] is [ \"Port=2222\" ]; a node's list replaces the shared one"},
	{Kind: Field, Tools: deployRS, In: "nodes.NAME", Theirs: "profiles", Ours: "toplevel", Note: "a node has one profile, its system"},
	{Kind: Field, Tools: deployRS, In: "nodes.NAME", Theirs: "profilesOrder", Note: "a node has one profile, its system"},
	{Kind: Field, Tools: deployRS, In: "nodes.NAME.profiles.system", Theirs: "path", Ours: "toplevel", Note: "the NixOS configuration itself, without activate.nixos around it"},
	{Kind: Field, Tools: deployRS, Theirs: "user", Note: "the owner of the profile, here always root; it is not ssh.user, who logs in", Shared: true},
	{Kind: Field, Tools: deployRS, Theirs: "sudo", Ours: "elevate", Note: "\"sudo\" or \"doas\", which must need no password"},
	{Kind: Field, Tools: deployRS, Theirs: "interactiveSudo", Ours: "elevate", Note: noPrompt},
	{Kind: Field, Tools: deployRS, Theirs: "magicRollback", Ours: "--confirm 2m", Note: "a flag: without a fresh login in that time the host goes back by itself"},
	{Kind: Field, Tools: deployRS, Theirs: "confirmTimeout", Ours: "--confirm 2m", Note: "a flag, with its time"},
	{Kind: Field, Tools: deployRS, Theirs: "autoRollback", Note: "after a failed activation the boot entry is the old one, and nothing is switched again unasked; deploy-ssh rollback goes back"},
	{Kind: Field, Tools: deployRS, Theirs: "activationTimeout", Ours: "--switch-timeout", Note: "a flag; without it a switch has no limit on a machine"},
	{Kind: Field, Tools: deployRS, Theirs: "fastConnection", Ours: "--no-substitute", Note: "a flag, for all nodes"},
	{Kind: Field, Tools: deployRS, Theirs: "remoteBuild", Ours: "--build-on-target", Note: onTarget},
	{Kind: Field, Tools: deployRS, Theirs: "tempPath", Note: "a run's files are in /run/deploy-ssh on the host"},

	{Kind: Flag, Tools: rebuild, Theirs: "target-host", Ours: "host", Note: "in the node's entry, with ssh.user"},
	{Kind: Flag, Tools: rebuild, Theirs: "build-host", Note: builders},
	{Kind: Flag, Tools: rebuild, Theirs: "use-remote-sudo", Ours: `elevate = "sudo"`, Note: "in the node's entry or in defaults"},
	{Kind: Flag, Tools: []Tool{NixosRebuild, DeployRS}, Theirs: "sudo", Ours: `elevate = "sudo"`, Note: "in the node's entry or in defaults"},
	{Kind: Flag, Tools: rebuild, Theirs: "elevate", Ours: `elevate = "sudo"`, Note: "in the node's entry or in defaults; \"doas\" too"},
	{Kind: Flag, Tools: rebuild, Theirs: "ask-sudo-password", Note: noPrompt},
	{Kind: Flag, Tools: rebuild, Theirs: "ask-elevate-password", Note: noPrompt},
	{Kind: Flag, Tools: rebuild, Theirs: "use-substitutes", Ours: "--substitute-on-destination", Note: "it is the default"},
	{Kind: Flag, Tools: rebuild, Theirs: "flake", Ours: ".#nodes", Note: "the node map is the first argument"},
	{Kind: Flag, Tools: rebuild, Theirs: "rollback", Ours: "deploy-ssh rollback .#nodes", Note: "a verb"},
	{Kind: Flag, Tools: rebuild, Theirs: "profile-name", Note: "it is always the system profile"},
	{Kind: Flag, Tools: rebuild, Theirs: "specialisation", Ours: "toplevel = ….config.specialisation.NAME.configuration.system.build.toplevel", Note: "in the node's entry"},
	{Kind: Flag, Tools: rebuild, Theirs: "install-bootloader", Note: "run it on the host: NIXOS_INSTALL_BOOTLOADER=1 /run/current-system/bin/switch-to-configuration boot"},
	{Kind: Flag, Tools: rebuild, Theirs: "attr", Ours: "deploy-ssh nodes -- --file FILE", Note: "the attribute is the first argument"},
	{Kind: Flag, Tools: []Tool{NixosRebuild, Colmena, DeployRS, Wire}, Theirs: "file", Ours: "deploy-ssh nodes -- --file FILE", Note: "what follows -- is Nix's"},
	{Kind: Flag, Tools: rebuild, Theirs: "upgrade", Ours: "nix flake update"},
	{Kind: Flag, Tools: rebuild, Theirs: "fast", Note: "leave it out: nothing is built but the systems"},
	{Kind: Flag, Tools: rebuild, Theirs: "no-reexec", Note: "leave it out: nothing is built but the systems"},
	{Kind: Flag, Tools: rebuild, Theirs: "no-build-nix", Note: "leave it out: nothing is built but the systems"},
	{Kind: Flag, Tools: []Tool{NixosRebuild, Morph}, Theirs: "dry-run", Ours: "deploy-ssh plan .#nodes", Note: "a verb; --goal dry-activate asks the new system"},

	{Kind: Flag, Tools: colmena, Theirs: "nix-option", Ours: "--option NAME VALUE"},
	{Kind: Flag, Tools: colmena, Theirs: "no-substitutes", Ours: "--no-substitute"},
	{Kind: Flag, Tools: colmena, Theirs: "no-gzip", Ours: "--compress none"},
	{Kind: Flag, Tools: colmena, Theirs: "config", Ours: "deploy-ssh nodes -- --file FILE", Note: "what follows -- is Nix's"},
	{Kind: Flag, Tools: colmena, Theirs: "eval-node-limit", Note: "leave it out: nodes are evaluated together"},
	{Kind: Flag, Tools: colmena, Theirs: "evaluator", Note: "leave it out: nodes are evaluated together"},
	{Kind: Flag, Tools: colmena, Theirs: "force-replace-unknown-profiles", Note: "leave it out: whoever deploys last wins; expect.machineId makes sure that it is the right host"},
	{Kind: Flag, Tools: colmenaWire, Theirs: "no-keys", Note: noSecrets},
	{Kind: Flag, Tools: colmena, Theirs: "no-build-on-target", Note: "leave it out: nothing is built on hosts without --build-on-target"},

	{Kind: Flag, Tools: deployRS, Theirs: "targets", Ours: "--on NAME,GLOB,@TAG"},
	{Kind: Flag, Tools: deployRS, Theirs: "hostname", Ours: "host", Note: "in the node's entry"},
	{Kind: Flag, Tools: deployRS, Theirs: "ssh-user", Ours: "ssh.user", Note: "in the node's entry, or DEPLOY_SSH_USER"},
	{Kind: Flag, Tools: deployRS, Theirs: "profile-user", Note: "it is always root's system profile"},
	{Kind: Flag, Tools: deployRS, Theirs: "ssh-opts", Ours: "ssh.options", Note: "in the node's entry, or a file of ssh_config with --ssh-config"},
	{Kind: Flag, Tools: deployRS, Theirs: "interactive-sudo", Note: noPrompt},
	{Kind: Flag, Tools: deployRS, Theirs: "dry-activate", Ours: "--goal dry-activate"},
	{Kind: Flag, Tools: deployRS, Theirs: "boot", Ours: "--goal boot"},
	{Kind: Flag, Tools: deployRS, Theirs: "magic-rollback", Ours: "--confirm 2m", Note: "without a fresh login in that time the host goes back by itself"},
	{Kind: Flag, Tools: deployRS, Theirs: "confirm-timeout", Ours: "--confirm 2m"},
	{Kind: Flag, Tools: deployRS, Theirs: "auto-rollback", Note: "after a failed activation the boot entry is the old one, and nothing is switched again unasked; deploy-ssh rollback goes back"},
	{Kind: Flag, Tools: deployRS, Theirs: "rollback-succeeded", Note: "one node's failure is that node's; deploy-ssh rollback takes the others back"},
	{Kind: Flag, Tools: deployRS, Theirs: "activation-timeout", Ours: "--switch-timeout"},
	{Kind: Flag, Tools: deployRS, Theirs: "fast-connection", Ours: "--no-substitute"},
	{Kind: Flag, Tools: deployRS, Theirs: "remote-build", Ours: "--build-on-target"},
	{Kind: Flag, Tools: deployRS, Theirs: "checksigs", Note: "leave it out: what is copied is signed for the run, and the host checks it"},
	{Kind: Flag, Tools: deployRS, Theirs: "skip-checks", Note: "leave it out: nix flake check is not run before a deploy"},
	{Kind: Flag, Tools: deployRS, Theirs: "interactive", Ours: "deploy-ssh plan .#nodes", Note: "there is no prompt; look first, then apply what was planned"},
	{Kind: Flag, Tools: deployRS, Theirs: "temp-path", Note: "a run's files are in /run/deploy-ssh on the host"},
	{Kind: Flag, Tools: deployRS, Theirs: "log-dir", Ours: "--report DIR", Note: "each run is kept in any case; --json has every line that a host printed"},
	{Kind: Flag, Tools: deployRS, Theirs: "debug-logs", Ours: "--verbose"},
	{Kind: Flag, Tools: deployRS, Theirs: "result-path", Ours: "--keep-result=DIR"},

	{Kind: Flag, Tools: morph, Theirs: "tagged", Ours: "--on @TAG"},
	{Kind: Flag, Tools: morph, Theirs: "order-by-tags", Ours: "order", Note: "in the node map, or a list of nodes"},
	{Kind: Flag, Tools: morph, Theirs: "upload-secrets", Note: noSecrets},
	{Kind: Flag, Tools: morph, Theirs: "passwd", Note: noPrompt},
	{Kind: Flag, Tools: morph, Theirs: "skip-health-checks", Ours: "--accept-degraded", Note: "makes the boot entry although units have failed"},
	{Kind: Flag, Tools: morph, Theirs: "skip-pre-deploy-checks", Ours: "--no-check"},

	{Kind: Flag, Tools: wire, Theirs: "path", Ours: "deploy-ssh nodes -- --file FILE", Note: "what follows -- is Nix's"},
	{Kind: Flag, Tools: wire, Theirs: "handle-unreachable", Note: "leave it out: a node that can't be reached fails alone, and the others are deployed"},
	{Kind: Flag, Tools: wire, Theirs: "ssh-accept-host", Note: "leave it out: " + firstKeys},
	{Kind: Flag, Tools: wire, Theirs: "non-interactive", Note: "leave it out: there is no prompt"},
	{Kind: Flag, Tools: wire, Theirs: "always-build-local", Note: "leave it out: nothing is built on hosts without --build-on-target"},

	{Kind: Verb, Tools: []Tool{NixosRebuild, Colmena, Wire, Morph}, Theirs: "switch", Ours: "deploy-ssh apply .#nodes"},
	{Kind: Verb, Tools: []Tool{NixosRebuild, Colmena, Wire, Morph}, Theirs: "boot", Ours: "deploy-ssh apply .#nodes --goal boot"},
	{Kind: Verb, Tools: []Tool{NixosRebuild, Colmena, Wire, Morph}, Theirs: "test", Ours: "deploy-ssh apply .#nodes --goal test"},
	{Kind: Verb, Tools: []Tool{NixosRebuild, Colmena, Wire, Morph}, Theirs: "dry-activate", Ours: "deploy-ssh apply .#nodes --goal dry-activate"},
	{Kind: Verb, Tools: []Tool{NixosRebuild, Colmena, Wire, Morph}, Theirs: "build", Ours: "deploy-ssh apply .#nodes --goal build"},
	{Kind: Verb, Tools: []Tool{Colmena, Wire, Morph}, Theirs: "push", Ours: "deploy-ssh apply .#nodes --goal push"},
	{Kind: Verb, Tools: rebuild, Theirs: "list-generations", Ours: "deploy-ssh status .#nodes"},
	{Kind: Verb, Tools: rebuild, Theirs: "dry-build", Ours: "deploy-ssh plan .#nodes"},
	{Kind: Verb, Tools: morph, Theirs: "deploy", Ours: "deploy-ssh apply .#nodes"},
	{Kind: Verb, Tools: morph, Theirs: "check-health", Ours: "deploy-ssh status .#nodes"},
	{Kind: Verb, Tools: colmena, Theirs: "eval", Ours: "deploy-ssh check .#nodes"},
	{Kind: Verb, Tools: wire, Theirs: "inspect", Ours: "deploy-ssh explain .#nodes"},
	{Kind: Verb, Tools: wire, Theirs: "show", Ours: "deploy-ssh explain .#nodes"},
	{Kind: Verb, Tools: colmena, Theirs: "apply-local", Ours: "deploy-ssh apply .#nodes", Note: "this machine is a node with a host, as any other"},
	{Kind: Verb, Tools: []Tool{Colmena, Morph}, Theirs: "upload-keys", Note: noSecrets},

	{Kind: Variable, Tools: []Tool{NixosRebuild, Colmena, DeployRS, Morph}, Theirs: "NIX_SSHOPTS", Ours: "ssh.options", Note: "or a file of ssh_config in DEPLOY_SSH_CONFIG"},
	{Kind: Variable, Tools: rebuild, Theirs: "NIX_SUDOOPTS", Ours: `elevate = "sudo"`},
	{Kind: Variable, Tools: []Tool{Colmena, Morph}, Theirs: "SSH_CONFIG_FILE", Ours: "DEPLOY_SSH_CONFIG"},
	{Kind: Variable, Tools: morph, Theirs: "SSH_IDENTITY_FILE", Ours: "DEPLOY_SSH_KEY"},
	{Kind: Variable, Tools: morph, Theirs: "SSH_USER", Ours: "DEPLOY_SSH_USER"},
	{Kind: Variable, Tools: morph, Theirs: "SSH_SKIP_HOST_KEY_CHECK", Note: firstKeys},
}
