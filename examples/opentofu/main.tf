# Hosts that are deployed by OpenTofu, one deploy-ssh each: docs/opentofu.md.

variable "toplevels" {
  description = "The store path of each node's system, by the node's name; see toplevels.sh."
  type        = map(string)
}

variable "nodes" {
  description = "How each node is reached."
  type = map(object({
    host     = string
    host_key = optional(string)
    options  = optional(list(string))
  }))
}

module "node" {
  source   = "../../tofu"
  for_each = var.nodes

  name     = each.key
  toplevel = var.toplevels[each.key]
  host     = each.value.host
  host_key = each.value.host_key
  options  = each.value.options
  flags    = ["--settle", "2s"]
}

output "toplevels" {
  value = { for name, node in module.node : name => node.toplevel }
}
