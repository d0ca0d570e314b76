// Package nix holds what deploy-ssh says to Nix, and the shapes both agree on.
package nix

import _ "embed"

// Contract is a Nix function of a request and the user's node map.
// It returns the contract: the node map in the one form that the program reads.
// See the head of contract.nix for the request.
//
//go:embed contract.nix
var Contract string

// Schema is the JSON Schema (2020-12) of the contract and of the environment
// map; its $defs "contract" and "environment" are the two entry points.
//
//go:embed schema.json
var Schema []byte
