output "toplevel" {
  description = "The system that the host runs, known once the deploy is done: what needs it waits for the deploy."
  value       = var.toplevel
  depends_on  = [terraform_data.deploy]
}
