nodes = {
  db = {
    host = "10.0.0.2"
  }
  web = {
    host     = "web.example.org"
    host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAeSTrPt2ByS4ek2PVJ8VMD7Ng7VvHEDK1nqbzB7vWkZ"
    options  = ["Port=2222"]
  }
}
