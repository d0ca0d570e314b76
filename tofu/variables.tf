variable "name" {
  description = "The node's name, in messages and records; and its address where host is not given."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", var.name))
    error_message = "A node's name has letters, digits, _, - and dots, begins with a letter or digit, and has at most 63 characters."
  }
}

variable "toplevel" {
  description = "The store path of the NixOS system, valid in the store of the machine that runs OpenTofu."
  type        = string

  validation {
    condition     = can(regex("^/nix/store/[0-9a-z]{32}-[0-9a-zA-Z+._?=-]+$", var.toplevel))
    error_message = "Wanted the store path of a built system, /nix/store/…-nixos-system-…."
  }
}

variable "host" {
  description = "Address, host name or ssh alias to connect to."
  type        = string
  default     = null
}

variable "user" {
  description = "Login user; else $DEPLOY_SSH_USER, else root."
  type        = string
  default     = null
}

variable "elevate" {
  description = "How a login user that isn't root becomes root: sudo or doas, which must need no password."
  type        = string
  default     = null
}

variable "key" {
  description = "Path of the private key file; else $DEPLOY_SSH_KEY, else the ssh agent. Not the key itself: that would be in the state."
  type        = string
  default     = null
}

variable "host_key" {
  description = "Public host key lines; only a host that shows one of them gets a login. Without it the first key is trusted and saved."
  type        = string
  default     = null
}

variable "options" {
  description = "Options of ssh_config, each Key=Value, such as Port=2222."
  type        = list(string)
  default     = null
}

variable "goal" {
  description = "How far to go: switch, boot, test, push or dry-activate."
  type        = string
  default     = "switch"
}

variable "triggers" {
  description = "Further values whose change makes a call, such as the id of the machine that the host is."
  type        = map(string)
  default     = {}
}

variable "flags" {
  description = "Further flags of deploy-ssh apply, such as [\"--confirm\", \"2m\"]. Their change alone makes no call."
  type        = list(string)
  default     = []
}

variable "program" {
  description = "The deploy-ssh program, by path or by its name in the PATH."
  type        = string
  default     = "deploy-ssh"
}
