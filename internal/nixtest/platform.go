package nixtest

import "runtime"

// platform is this machine as Nix names it.
var platform = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux"

// Platform is this machine as Nix names it, such as x86_64-linux.
func Platform() string { return platform }
