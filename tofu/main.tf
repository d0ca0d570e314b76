# One NixOS host, brought to a system by deploy-ssh: docs/opentofu.md is the guide.

locals {
  # The node's entry of DEPLOY_SSH_NODES. A field that is null is left out and inherits.
  entry = { for field, value in {
    host    = var.host
    user    = var.user
    elevate = var.elevate
    key     = var.key
    hostKey = var.host_key
    options = var.options
  } : field => value if value != null }
}

resource "terraform_data" "deploy" {
  # What a deploy depends on. While nothing of it changes there is no call, and a change
  # is shown in the plan. A deploy that failed leaves the resource tainted, so the next
  # apply tries again.
  triggers_replace = {
    toplevel = var.toplevel
    settings = local.entry
    goal     = var.goal
    triggers = var.triggers
  }

  provisioner "local-exec" {
    # No shell: the command is the last argument of the program.
    interpreter = concat([var.program, "apply", "--on", var.name, "--goal", var.goal], var.flags, ["--store-path"])
    command     = "${var.name}=${var.toplevel}"
    environment = {
      DEPLOY_SSH_NODES = jsonencode({ nodes = { (var.name) = local.entry } })
    }
  }
  # There is no provisioner for destroy: a host that is no longer managed goes on with
  # the system that it runs.
}
