terraform {
  # The first with terraform_data.
  required_version = ">= 1.4.0"
}
