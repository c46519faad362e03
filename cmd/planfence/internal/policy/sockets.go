package policy

// ControlSockets are unix sockets of daemons that run commands for whoever may
// connect: a fenced process may not. Patterns match the end of the socket's
// path inside the file system that holds it (/run is often one of its own).
var ControlSockets = []string{
	"**/docker.sock",
	"**/containerd.sock",
	"**/containerd/containerd.sock.ttrpc",
	"**/podman.sock",
	"**/crio.sock",
	"**/buildkitd.sock",
	"**/systemd/private",
	"**/user/*/bus",
	"bus", // the user bus where /run/user/UID is a file system of its own
	"**/dbus/system_bus_socket",
	"**/dbus-1/*",
	"**/atd.sock",
	// Terminals and editors that run what they are told.
	"**/tmux-*/*",
	"**/screen/S-*/*",
	"**/.screen/*",
	"**/emacs/server",
	"**/emacs*/server",
	"**/wezterm/*",
	"**/kitty-*",
	"**/zellij/**",
	// Machines and containers.
	"**/lxd/unix.socket",
	"**/incus/unix.socket",
	"**/libvirt-sock",
	"**/libvirt/*-sock",
	"**/snapd.socket",
	"**/containerd/s/*",
	"**/cron*.sock",
}
