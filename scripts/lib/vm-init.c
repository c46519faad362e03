/*
 * Process 1 of the test VM: mounts what a Debian system has mounted, runs one
 * command, and hands its output and exit status to the host.
 *
 * Three virtio ports lead to the host: 1 control, 2 stdout, 3 stderr. Control says
 * "ready" just before the command starts and "exit N" once everything the command
 * wrote has been taken by the host; a guest that ends without the second line died.
 * The command sees pipes, not the ports, because a port can be opened only once
 * and programs do open /dev/stderr.
 *
 * Namespaces of the one NVMe controller: 1 root, 2 kernel modules, 3 payload,
 * 4 (optional) the shared directory. Linux numbers the block devices in the order in
 * which its scan, which is parallel from 6.12 on, finds them: "nsid" in sysfs tells
 * them apart. The payload is raw: a 512-byte header
 * "PFVM ARGC ARGBYTES ENVC ENVBYTES BINBYTES SHARE\n", then the arguments and the
 * environment as NUL-terminated strings, then the planfence binary.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HEADER_SIZE 512
#define DEVICE_WAIT_MS 20000

enum { DISK_ROOT = 1, DISK_MODULES, DISK_PAYLOAD, DISK_SHARE, DISKS = DISK_SHARE };
enum { PORT_CONTROL = 1, PORT_STDOUT, PORT_STDERR };

static void halt(void)
{
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

/* Without "ready" on the control port this is a failed boot for the host. */
static void __attribute__((format(printf, 1, 2))) die(const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "vm-init: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, ": %s\n", strerror(err));
	va_end(ap);
	halt();
}

static void mount_at(const char *source, const char *target, const char *type,
		     unsigned long flags, const char *data)
{
	if (mkdir(target, 0755) && errno != EEXIST && errno != EROFS && errno != EPERM)
		die("mkdir %s", target);
	if (mount(source, target, type, flags, data) && errno != EBUSY)
		die("mount %s on %s", type, target);
}

static void mount_all(void)
{
	const unsigned long sys = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	mount_at("proc", "/proc", "proc", sys, NULL);
	mount_at("sysfs", "/sys", "sysfs", sys, NULL);
	mount_at("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=755");
	mount_at("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		 "gid=5,mode=620,ptmxmode=666");
	mount_at("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mount_at("mqueue", "/dev/mqueue", "mqueue", sys, NULL);
	mount_at("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
	mount_at("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mount_at("securityfs", "/sys/kernel/security", "securityfs", sys, NULL);
	mount_at("debugfs", "/sys/kernel/debug", "debugfs", sys, NULL);
	mount_at("tracefs", "/sys/kernel/tracing", "tracefs", sys, NULL);
	mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", sys, "nsdelegate");
	mount_at("bpf", "/sys/fs/bpf", "bpf", sys, "mode=700");

	mkdir("/run/lock", 01777);
	chmod("/run/lock", 01777);
	mkdir("/run/user", 0755);

	/* devtmpfs has the devices, not the links that udev adds. */
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
}

/* The device of namespace NSID, such as /dev/nvme0n2; waits for the kernel's scan. */
static const char *disk(int nsid)
{
	static char path[64];
	const struct timespec ms = { .tv_nsec = 1000000 };
	int waited, n;

	for (waited = 0; waited < DEVICE_WAIT_MS; waited++) {
		for (n = 1; n <= DISKS; n++) {
			int found = 0;
			FILE *file;

			snprintf(path, sizeof(path), "/sys/block/nvme0n%d/nsid", n);
			file = fopen(path, "re");
			if (!file)
				continue;
			if (fscanf(file, "%d", &found) != 1)
				found = 0;
			fclose(file);
			snprintf(path, sizeof(path), "/dev/nvme0n%d", n);
			if (found == nsid)
				return path;
		}
		nanosleep(&ms, NULL);
	}
	errno = ENODEV;
	die("find disk %d", nsid);
	return NULL;
}

static void loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr))
		die("bring lo up");
	close(fd);
}

/* The console driver is a module on 6.1 and built in from 6.12. */
static void load_console_driver(void)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		die("fork");
	if (!pid) {
		execl("/usr/sbin/modprobe", "modprobe", "-aq", "virtio_pci",
		      "virtio_console", (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid)
		die("wait for modprobe");
}

static int open_port(int port)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	char path[32];
	int fd, waited;

	snprintf(path, sizeof(path), "/dev/vport0p%d", port);
	for (waited = 0; waited < DEVICE_WAIT_MS; waited++) {
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		nanosleep(&ms, NULL);
	}
	die("open %s", path);
	return -1;
}

static void write_all(int fd, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			die("write to the host");
		}
		buf += n;
		len -= n;
	}
}

static void *read_exact(int fd, size_t len)
{
	char *buf = malloc(len + 1);
	size_t have = 0;

	if (!buf)
		die("allocate %zu bytes", len);
	while (have < len) {
		ssize_t n = read(fd, buf + have, len - have);

		if (n <= 0) {
			if (!n)
				errno = EIO;
			die("read the payload");
		}
		have += n;
	}
	buf[len] = 0;
	return buf;
}

/* Splits COUNT strings of BLOB, each ended by a NUL, into a NULL-ended vector. */
static char **split(char *blob, size_t len, unsigned int count)
{
	char **vec = calloc(count + 1, sizeof(*vec));
	char *end = blob + len;
	unsigned int i;

	if (!vec)
		die("allocate a vector");
	for (i = 0; i < count && blob < end; i++) {
		vec[i] = blob;
		blob += strlen(blob) + 1;
	}
	errno = EINVAL;
	if (i != count || blob != end)
		die("payload: %u strings expected, %u found", count, i);
	return vec;
}

static void install_binary(int fd, size_t len)
{
	static const char path[] = "/usr/local/bin/planfence";
	char *buf = read_exact(fd, len);
	int out;

	unlink(path);
	out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	if (out < 0)
		die("create %s", path);
	write_all(out, buf, len);
	if (fchmod(out, 0755) || close(out))
		die("write %s", path);
	free(buf);
}

static void read_payload(char ***argv, char ***envp)
{
	size_t argbytes, envbytes, binbytes;
	unsigned int argc, envc;
	int share, fd;
	char *header;

	fd = open(disk(DISK_PAYLOAD), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("open the payload");
	header = read_exact(fd, HEADER_SIZE);
	if (sscanf(header, "PFVM %u %zu %u %zu %zu %d\n", &argc, &argbytes, &envc,
		   &envbytes, &binbytes, &share) != 6 || !argc) {
		errno = EINVAL;
		die("payload header");
	}
	*argv = split(read_exact(fd, argbytes), argbytes, argc);
	*envp = split(read_exact(fd, envbytes), envbytes, envc);
	if (binbytes)
		install_binary(fd, binbytes);
	if (share)
		mount_at(disk(DISK_SHARE), "/mnt/share", "ext4", MS_RDONLY | MS_NODEV, NULL);
	free(header);
	close(fd);
}

static void set_limits(void)
{
	const struct rlimit files = { .rlim_cur = 1024, .rlim_max = 524288 };

	if (setrlimit(RLIMIT_NOFILE, &files))
		die("set the limit of open files");
}

static void __attribute__((noreturn)) run_command(char **argv, char **envp, int out,
						  int err)
{
	sigset_t none;
	int in, code;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	in = open("/dev/null", O_RDONLY);
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	if (in > 2)
		close(in);
	if (chdir("/root"))
		die("chdir /root");
	clearenv();
	environ = envp;
	execvp(argv[0], argv);
	code = errno == ENOENT ? 127 : 126;
	dprintf(2, "vm-init: %s: %s\n", argv[0], strerror(errno));
	_exit(code);
}

/* Moves up to LIMIT bytes and answers how many; 0 once the pipe has no writer left. */
static ssize_t relay(int from, int to, size_t limit)
{
	static char buf[65536];
	ssize_t n = read(from, buf, limit < sizeof(buf) ? limit : sizeof(buf));

	if (n > 0)
		write_all(to, buf, n);
	return n;
}

/* What is in the pipe now, and no more: a process left behind may go on writing. */
static void drain(int from, int to)
{
	int left = 0;

	if (from < 0 || ioctl(from, FIONREAD, &left))
		return;
	while (left > 0) {
		ssize_t n = relay(from, to, left);

		if (n <= 0)
			return;
		left -= n;
	}
}

static int reap(pid_t command, int *status)
{
	int done = 0, st;
	pid_t pid;

	while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
		if (pid == command) {
			*status = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
			done = 1;
		}
	}
	return done;
}

int main(void)
{
	int control, ports[2], out[2], err[2], status = 0;
	char **argv, **envp, line[32];
	struct pollfd fds[3];
	sigset_t chld;
	pid_t command;

	umask(022);
	mount_all();
	mount_at(disk(DISK_MODULES), "/usr/lib/modules", "ext4", MS_RDONLY | MS_NODEV, NULL);
	loopback_up();
	sethostname("planfence-vm", strlen("planfence-vm"));
	if (access("/dev/vport0p1", F_OK))
		load_console_driver();
	read_payload(&argv, &envp);
	set_limits();

	control = open_port(PORT_CONTROL);
	ports[0] = open_port(PORT_STDOUT);
	ports[1] = open_port(PORT_STDERR);

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	fds[2].fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fds[2].fd < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		die("make pipes");

	write_all(control, "ready\n", 6);
	command = fork();
	if (command < 0)
		die("fork");
	if (!command)
		run_command(argv, envp, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	fds[0].fd = out[0];
	fds[1].fd = err[0];
	fds[0].events = fds[1].events = fds[2].events = POLLIN;

	for (;;) {
		int i;

		if (poll(fds, 3, -1) < 0 && errno != EINTR)
			die("poll");
		for (i = 0; i < 2; i++)
			if (fds[i].revents && !relay(fds[i].fd, ports[i], SIZE_MAX))
				fds[i].fd = -1; /* poll skips it from now on */
		if (fds[2].revents & POLLIN) {
			struct signalfd_siginfo info;

			while (read(fds[2].fd, &info, sizeof(info)) > 0)
				;
			if (reap(command, &status))
				break;
		}
	}
	drain(fds[0].fd, ports[0]);
	drain(fds[1].fd, ports[1]);
	snprintf(line, sizeof(line), "exit %d\n", status);
	write_all(control, line, strlen(line));
	halt();
}
