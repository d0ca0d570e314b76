{
  services.postgresql.enable = true;
}
