//! The programs that the tests run are built before they run.
//!
//! `cargo test` builds a package's programs when that package has integration tests, and the libraries that tests
//! depend on. That is why the tests of the examples and of the commands lie in the packages of the examples and of the
//! command line, and why this package depends on the shim and the simulated driver for its tests. So all that is left
//! to do here after a plain `cargo test` is to link two libraries to where they are looked for, and to compile the C
//! programs. Where only one package is tested, more may be missing or old.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Where everything lies that the tests run.
pub struct Built {
    /// The cargo output folder: libraries and the workspace's programs.
    pub bin: PathBuf,
    /// The C examples, by name without suffix.
    pub examples: PathBuf,
    /// The programs and libraries of `tests/c`.
    pub programs: PathBuf,
}

impl Built {
    /// `libbaton.so`.
    pub fn shim(&self) -> PathBuf {
        self.bin.join("libbaton.so")
    }
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

/// Builds what is missing or old, once a process, and tells what it does.
///
/// With `BATON_TEST_BUILT=1` everything is taken as it is, for many processes of tests at once (`tests/stress`).
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let this = std::env::current_exe().expect("a running test has a file");
        let bin = this.ancestors().nth(2).expect("tests run from target/PROFILE/deps").to_path_buf();
        let bin = if can_be_preloaded_from(&bin) { bin } else { link_to(&bin) };
        let built = Built { examples: bin.join("c-examples"), programs: bin.join("c-programs"), bin };
        if std::env::var_os("BATON_TEST_BUILT").is_none() {
            // Tests of other processes must not run a file that is half written.
            let lock = File::create(built.bin.join(".tests-lock")).expect("the target folder is writable");
            lock.lock().expect("a lock on a local file");
            build_workspace(&built.bin.canonicalize().expect("the folder this program lies in"));
            build_c("examples/c", &built.examples);
            build_c("tests/c", &built.programs);
        }
        built
    })
}

/// The loader takes what is behind a space or a colon for another library.
fn can_be_preloaded_from(folder: &Path) -> bool {
    !folder.to_string_lossy().contains([' ', ':'])
}

/// Another name for a folder, without what cannot be preloaded from.
fn link_to(folder: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let link = Path::new("/tmp").join(format!("baton-tests-{:016x}", hasher.finish()));
    // Another test program may have made it at the same time.
    let _ = std::os::unix::fs::symlink(folder, &link);
    let leads_to = fs::read_link(&link);
    assert!(leads_to.as_ref().is_ok_and(|target| target == folder), "{} leads to {leads_to:?}", link.display());
    link
}

/// Says something to those who wait for the tests, past the test harness, which keeps what tests print.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Has cargo build the workspace's libraries and programs. It says nothing if they are there, and otherwise what it is
/// doing.
fn build_workspace(bin: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    // `--examples` makes cargo choose the dependencies' features as `cargo test` does: other features would be another build.
    cargo.args(["build", "--workspace", "--lib", "--bins", "--examples"]).current_dir(root());
    if bin.file_name() == Some(OsStr::new("release")) {
        cargo.arg("--release");
    }
    cargo.env("CARGO_TARGET_DIR", bin.parent().expect("a profile's folder lies in the target folder"));
    if std::io::stderr().is_terminal() {
        cargo.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = cargo.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("cargo can be run");
    let mut told = false;
    for line in BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok) {
        if !line.contains("Finished") {
            if !told {
                tell(
                    "baton-tests: building the libraries and programs that the tests run, because some are missing or old",
                );
            }
            told = true;
            tell(&line);
        }
    }
    let status = child.wait().expect("our own child");
    assert!(status.success(), "{cargo:?}: {status}");
}

/// Compiles C programs with the script of their folder, if anything has changed since the last time.
fn build_c(folder: &str, out: &Path) {
    let sources = [folder, "examples/c", "examples/kernels", "include/c"];
    let newest = sources.iter().filter_map(|source| newest_below(&root().join(source))).max();
    let stamp = out.join(".built");
    let built = fs::metadata(&stamp).and_then(|stamp| stamp.modified()).ok();
    if built.is_some() && built > newest {
        return;
    }
    tell(&format!(
        "baton-tests: compiling the C programs of {folder} that the tests run, because some are missing or old"
    ));
    let mut script = Command::new("sh");
    script.arg(root().join(folder).join("build.sh")).arg(out).stdin(Stdio::null());
    let status = script.status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{script:?}: {status:?}");
    File::create(stamp).expect("the target folder is writable");
}

/// When something below a folder was last changed.
fn newest_below(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let times = entries.map(|entry| entry.expect("a readable folder")).flat_map(|entry| {
        let metadata = entry.metadata().expect("a readable folder");
        let below = metadata.is_dir().then(|| newest_below(&entry.path())).flatten();
        [metadata.modified().ok(), below]
    });
    times.flatten().max()
}
