//! The run directory: one daemon at a time, sockets that a dead one left are replaced, a live
//! one's are not, and nothing is left at exit.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::config::check_socket_path;

/// Where sockets are unless `--run-dir` or `TOLLGATE_RUNDIR` say otherwise.
pub const DEFAULT_RUN_DIR: &str = "/run/tollgate";

const PID_FILE: &str = "switchd.pid";
const VHOST_DIR: &str = "vhost";
const RPC_SOCKET: &str = "rpc.sock";
const OPENFLOW_SUFFIX: &str = ".mgmt";
const DIR_MODE: u32 = 0o750;
const SOCKET_MODE: u32 = 0o660;

/// The run directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// A system call on `path` failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another daemon owns the directory.
    #[error(
        "another switchd{} runs in {}: stop it or choose another --run-dir",
        pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
        path.display()
    )]
    Taken {
        /// The run directory.
        path: PathBuf,
        /// The other daemon, if its PID file says.
        pid: Option<u32>,
    },
    /// Some process listens on the socket.
    #[error("{} is in use: another process listens on it", .0.display())]
    SocketInUse(PathBuf),
    /// Something else than a socket is in its place.
    #[error("{} exists and is no socket: it is left alone, move it away", .0.display())]
    NotASocket(PathBuf),
    /// The path cannot name a socket.
    #[error("{}: {reason}", path.display())]
    BadPath {
        /// The path.
        path: PathBuf,
        /// What a path must be.
        reason: String,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunDirError {
    let path = path.to_owned();
    move |source| RunDirError::Io { action, path, source }
}

/// A run directory that belongs to this process until it is dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    pid_file: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl RunDir {
    /// Creates the directory with its `vhost` directory where needed, takes it for this process,
    /// and removes the sockets that a dead daemon left.
    ///
    /// # Errors
    /// When another daemon has it, a live process listens on one of its sockets, or the file
    /// system refuses.
    pub fn claim(path: &Path) -> Result<Self, RunDirError> {
        let path = std::path::absolute(path).map_err(io_error("resolve", path))?;
        create_dir(&path)?;
        create_dir(&path.join(VHOST_DIR))?;
        let pid_file = path.join(PID_FILE);
        let lock = lock_pid_file(&path, &pid_file)?;
        let run_dir = Self { path, pid_file, _lock: lock };
        run_dir.remove_dead_sockets()?;
        Ok(run_dir)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where JSON-RPC listens.
    pub fn rpc_socket(&self) -> PathBuf {
        self.path.join(RPC_SOCKET)
    }

    /// Where OpenFlow of `bridge` listens.
    pub fn openflow_socket(&self, bridge: &str) -> PathBuf {
        self.path.join(format!("{bridge}{OPENFLOW_SUFFIX}"))
    }

    /// Where the vhost-user socket of `port` is unless it was given.
    pub fn vhost_socket(&self, port: &str) -> PathBuf {
        self.path.join(VHOST_DIR).join(port)
    }

    fn remove_dead_sockets(&self) -> Result<(), RunDirError> {
        let entries = fs::read_dir(&self.path).map_err(io_error("list", &self.path))?;
        for entry in entries {
            let path = entry.map_err(io_error("list", &self.path))?.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if name == RPC_SOCKET.as_bytes() || name.ends_with(OPENFLOW_SUFFIX.as_bytes()) {
                remove_dead_socket(&path)?;
            }
        }
        Ok(())
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // Removed while the lock is held: a daemon that waits for it finds that its file is gone
        // and makes a new one.
        if let Err(error) = fs::remove_file(&self.pid_file) {
            tracing::warn!(path = %self.pid_file.display(), %error, "cannot remove the PID file");
        }
    }
}

fn create_dir(path: &Path) -> Result<(), RunDirError> {
    match DirBuilder::new().mode(DIR_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result.map_err(io_error("create the directory", path)),
    }
}

/// Opens and locks the PID file and writes our PID into it.
fn lock_pid_file(run_dir: &Path, pid_file: &Path) -> Result<File, RunDirError> {
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(pid_file)
            .map_err(io_error("open", pid_file))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(RunDirError::Taken { path: run_dir.to_owned(), pid: read_pid(&file) });
            }
            Err(error) => return Err(io_error("lock", pid_file)(error.into())),
        }
        // The last owner may have removed the file between our open and our lock.
        let locked = file.metadata().map_err(io_error("inspect", pid_file))?;
        let same = fs::symlink_metadata(pid_file)
            .is_ok_and(|named| named.ino() == locked.ino() && named.dev() == locked.dev());
        if same {
            file.set_len(0).map_err(io_error("truncate", pid_file))?;
            writeln!(file, "{}", std::process::id()).map_err(io_error("write", pid_file))?;
            return Ok(file);
        }
    }
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// A listening socket that removes its file when it is dropped.
#[derive(Debug)]
pub struct BoundSocket {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl BoundSocket {
    /// Listens on `path`, where a dead process's socket is replaced. The listener does not block.
    ///
    /// # Errors
    /// When a live process listens there, something else is there, or the file system refuses.
    pub fn listen(path: &Path) -> Result<(Self, UnixListener), RunDirError> {
        check_socket_path(path)
            .map_err(|reason| RunDirError::BadPath { path: path.to_owned(), reason })?;
        remove_dead_socket(path)?;
        let listener = UnixListener::bind(path).map_err(io_error("listen on", path))?;
        let created = fs::symlink_metadata(path).map_err(io_error("inspect", path))?;
        let socket = Self { path: path.to_owned(), device: created.dev(), inode: created.ino() };
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))
            .map_err(io_error("set the mode of", path))?;
        listener.set_nonblocking(true).map_err(io_error("listen on", path))?;
        Ok((socket, listener))
    }

    /// The path it was bound to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|now| now.dev() == self.device && now.ino() == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Removes the socket at `path` if nobody listens on it any more.
fn remove_dead_socket(path: &Path) -> Result<(), RunDirError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("inspect", path)(error)),
    };
    if !kind.is_socket() {
        return Err(RunDirError::NotASocket(path.to_owned()));
    }
    if is_listening(path)? {
        return Err(RunDirError::SocketInUse(path.to_owned()));
    }
    fs::remove_file(path).map_err(io_error("remove the dead socket", path))
}

/// Whether a connection to `path` finds a listener. Does not block: a listener with a full backlog
/// is alive.
fn is_listening(path: &Path) -> Result<bool, RunDirError> {
    use rustix::io::Errno;
    let attempt = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    match attempt() {
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(io_error("probe", path)(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_and_told_who_has_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let first = RunDir::claim(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o750);
        assert_eq!(fs::metadata(path.join("vhost")).unwrap().mode() & 0o777, 0o750);
        let error = RunDir::claim(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        assert!(!path.join(PID_FILE).exists());
        RunDir::claim(&path).unwrap();
    }

    #[test]
    fn dead_sockets_are_replaced_live_ones_and_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("br0.mgmt");
        drop(UnixListener::bind(&dead).unwrap());
        assert!(dead.exists());
        let run_dir = RunDir::claim(dir.path()).unwrap();
        assert!(!dead.exists());
        drop(run_dir);

        let live = UnixListener::bind(&dead).unwrap();
        let error = RunDir::claim(dir.path()).unwrap_err();
        assert!(matches!(error, RunDirError::SocketInUse(_)), "{error}");
        drop(live);

        let rpc = dir.path().join(RPC_SOCKET);
        fs::write(&rpc, "precious").unwrap();
        let error = RunDir::claim(dir.path()).unwrap_err();
        assert!(matches!(error, RunDirError::NotASocket(_)), "{error}");
        assert_eq!(fs::read(&rpc).unwrap(), b"precious");
    }

    #[test]
    fn a_bound_socket_removes_its_own_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (socket, _listener) = BoundSocket::listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "someone else's").unwrap();
        drop(socket);
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        let (socket, _listener) = BoundSocket::listen(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_refused_with_the_limit() {
        let error = BoundSocket::listen(Path::new(&format!("/tmp/{}", "x".repeat(120))));
        assert!(error.unwrap_err().to_string().contains("107"));
    }
}
