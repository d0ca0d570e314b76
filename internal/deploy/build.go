package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// buildsThere reports whether the host builds its system itself. A node that names a
// bare store path has nothing that could be built.
func (d *deployment) buildsThere() bool {
	return d.fleet.BuildThere != nil && d.fleet.Rollback == nil && d.node.DrvPath != ""
}

// sent is the path whose closure is copied.
func (d *deployment) sent() string {
	if d.buildsThere() {
		return d.node.DrvPath
	}
	return d.node.Toplevel
}

// buildThere builds the system on the host and reads there what is else read in the
// deployer's store.
func (d *deployment) buildThere(ctx context.Context) step {
	detail := "the system is already on the host"
	if !d.host.Valid {
		lines := d.lines(report.Build, true)
		defer lines.Flush()
		began := time.Now()
		if err := d.fleet.BuildThere.Run(ctx, d.transport, d.node.DrvPath, d.node.Toplevel, lines); err != nil {
			return d.unbuilt(ctx, err)
		}
		detail = "built on the host in " + time.Since(began).Round(time.Second/10).String()
	}
	system, err := closure.InspectThere(ctx, d.transport, d.node.Toplevel)
	var way *ssh.Error
	if errors.As(err, &way) {
		return d.unbuilt(ctx, err)
	} else if err != nil {
		return end(verdict.Refused, err.Error())
	}
	d.system = system
	if why := d.unfit(); why != "" {
		return end(verdict.Refused, why)
	}
	return step{detail: detail}
}

// unbuilt judges an error of a build on the host, where nothing was activated.
func (d *deployment) unbuilt(ctx context.Context, err error) step {
	var lost *ssh.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return end(verdict.NotStarted, "interrupted during the build on the host, which was not changed")
	case errors.As(err, &lost):
		return end(verdict.CopyFailed, "the connection was lost during the build on the host: "+err.Error())
	}
	return end(verdict.BuildFailed, err.Error())
}
