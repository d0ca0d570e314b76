package deploy

import (
	"context"
	"errors"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

func (d *deployment) connect(ctx context.Context) step {
	system, err := closure.Inspect(d.node.Toplevel)
	if err != nil {
		return end(verdict.Refused, err.Error())
	}
	d.system = system
	s := d.node.SSH
	conn, err := d.fleet.Connector.Connect(ctx, d.node.Name, ssh.Settings{
		Host: s.Host.V, User: s.User.V, Key: s.Key.V, HostKeys: s.HostKeys.V,
		Options: s.Options.V, ClientConfig: d.fleet.ClientConfig, Elevate: ssh.Elevation(d.node.Elevate.V),
	})
	if err != nil {
		return d.unreached(ctx, err)
	}
	d.transport = sshTransport{Conn: conn, copier: d.fleet.Copier, limit: d.fleet.Limits.Switch}
	detail := "connected, host key " + conn.Trust.String()
	return step{detail: detail}
}

// unreached judges an error of the way to the host, before anything was changed there.
func (d *deployment) unreached(ctx context.Context, err error) step {
	if ctx.Err() != nil {
		return end(verdict.NotStarted, "interrupted before the host was changed")
	}
	var way *ssh.Error
	if errors.As(err, &way) {
		switch way.Kind {
		case ssh.HostKeyRefused:
			return end(verdict.HostKeyRefused, err.Error())
		case ssh.LoginRefused:
			return end(verdict.LoginRefused, err.Error())
		case ssh.ElevationRefused:
			return end(verdict.ElevationRefused, err.Error())
		case ssh.Noise:
			return end(verdict.Unusable, err.Error())
		}
	}
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return end(verdict.Unusable, err.Error())
	}
	return end(verdict.Unreachable, err.Error())
}
