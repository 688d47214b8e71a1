//! libphp and the shim, opened: the only place that calls them. shim.h is the same in C.

use forkyard_php_shim::{SHIMS, VERSIONS};
use forkyard_worker::runtime::php::files;
use forkyard_worker::slowlog::PhpLayout;
use std::error::Error as StdError;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

/// FORKYARD_SHIM_VERSION.
const SHIM_VERSION: u32 = 6;

/// Ini values set in this mode can be changed by scripts.
pub(crate) const USER: c_int = 1;
/// Ini values set in this mode can't.
pub(crate) const SYSTEM: c_int = 4;

/// struct forkyard_shim_start.
#[repr(C)]
pub(crate) struct Start {
    pub(crate) php_ini: *const c_char,
    pub(crate) ini_entries: *const c_char,
    pub(crate) executable: *const c_char,
    pub(crate) disabled_functions: *const c_char,
    pub(crate) ini_names: *const IniNames,
    pub(crate) no_php_ini: u8,
    pub(crate) extended_info: u8,
}

/// What PHP is to be started with.
pub(crate) struct Wanted<'w> {
    /// php.ini or its directory; `None`: where libphp looks by itself.
    pub(crate) php_ini: Option<&'w CStr>,
    /// Lines that win over every file.
    pub(crate) ini_entries: Option<&'w CStr>,
    /// `PHP_BINARY`.
    pub(crate) executable: Option<&'w CStr>,
    /// Functions that are disabled besides php.ini's.
    pub(crate) disabled_functions: Option<&'w CStr>,
    /// What scripts are told of the files of settings; `None`: what PHP has read.
    pub(crate) ini_names: Option<&'w IniNames>,
    /// No file is read.
    pub(crate) no_php_ini: bool,
    /// Scripts are compiled with what debuggers and profilers want.
    pub(crate) extended_info: bool,
}

/// struct forkyard_shim_ini_names.
#[repr(C)]
pub(crate) struct IniNames {
    pub(crate) php_ini: *const c_char,
    pub(crate) directories: *const c_char,
    pub(crate) scanned: *const c_char,
}

/// struct forkyard_shim_facts.
#[repr(C)]
pub(crate) struct Facts {
    pub(crate) expose_php: u8,
    pub(crate) fix_pathinfo: u8,
    pub(crate) discard_path: u8,
    pub(crate) script_path_encoded: u8,
    pub(crate) doc_root: *const c_char,
}

/// struct forkyard_shim_worker.
#[repr(C)]
pub(crate) struct Worker {
    pub(crate) api: *const c_void,
    pub(crate) status: unsafe extern "C" fn(*const c_void, *mut c_char, usize) -> usize,
    pub(crate) may_set: Option<unsafe extern "C" fn(*const c_char) -> u8>,
    pub(crate) later_status: unsafe extern "C" fn(*mut c_void, u32),
    pub(crate) log_limit: u32,
    pub(crate) stderr_caught: u8,
}

/// struct forkyard_shim_request.
#[repr(C)]
pub(crate) struct Description {
    pub(crate) method: *const c_char,
    pub(crate) query_string: *const c_char,
    pub(crate) request_uri: *const c_char,
    pub(crate) content_type: *const c_char,
    pub(crate) script: *const c_char,
    pub(crate) authorization: *const c_char,
    pub(crate) role: *const c_char,
    pub(crate) content_length: i64,
    pub(crate) status: u32,
    pub(crate) denied: u8,
}

type StartFn = unsafe extern "C" fn(*const Start) -> c_int;
type SetIniFn = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;
type BeginWorkerFn = unsafe extern "C" fn(*const Worker, *mut Facts);
type ResolvesFn = unsafe extern "C" fn(*const c_char) -> c_int;
type ServeFn = unsafe extern "C" fn(*mut c_void, *const Description) -> c_int;
type ReportFn = unsafe extern "C" fn(c_int) -> c_int;
type IniFn = unsafe extern "C" fn(*const c_char) -> *const c_char;
type EachFile = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
type LoadedFn = unsafe extern "C" fn(EachFile, *mut c_void);
type BeginQuietFn = unsafe extern "C" fn() -> c_int;
type EachScript = unsafe extern "C" fn(*mut c_void, *const c_char, usize, i64);
type ScriptsFn = unsafe extern "C" fn(EachScript, *mut c_void);
type CompileFn = unsafe extern "C" fn(*const c_char) -> c_int;
type EndWorkerFn = unsafe extern "C" fn();
type StackFn = unsafe extern "C" fn(*mut PhpLayout);

/// libphp with its shim. Never unloaded: PHP leaves handlers and threads' data behind.
#[derive(Debug)]
pub(crate) struct Php {
    /// As `8.2.35`.
    pub(crate) version: String,
    start: StartFn,
    set_ini: SetIniFn,
    begin_worker: BeginWorkerFn,
    resolves: ResolvesFn,
    serve: ServeFn,
    report: ReportFn,
    ini: IniFn,
    loaded: LoadedFn,
    begin_quiet: BeginQuietFn,
    scripts: ScriptsFn,
    compile: CompileFn,
    end_worker: EndWorkerFn,
    stack: StackFn,
}

/// Why PHP can't be had.
#[derive(Debug)]
pub(crate) enum Error {
    /// This executable has no shim for the version.
    NotBuilt(String),
    /// No libphp where it usually is.
    NoLibrary(String),
    /// dlopen(3) or dlsym(3) failed.
    Load(String),
    /// The library is another version or another kind of build (thread-safe, debug) than is wanted.
    Version(PathBuf, String, String),
    /// The shim's memory file could not be made.
    MemoryFile(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotBuilt(version) => {
                write!(
                    f,
                    "forkyard-php was built without PHP {version}'s headers (php{version}-dev)"
                )
            }
            Error::NoLibrary(version) => {
                write!(f, "no libphp{version}.so found")
            }
            Error::Load(reason) => f.write_str(reason),
            Error::Version(path, found, wanted) => {
                write!(f, "{} is PHP {found}, not {wanted}", path.display())
            }
            Error::MemoryFile(_) => f.write_str("memory file for the PHP shim"),
        }
    }
}

impl Error {
    /// What to do about it.
    pub(crate) fn solution(&self) -> String {
        match self {
            Error::NotBuilt(version) => {
                let built: Vec<&str> = SHIMS.iter().map(|shim| shim.version).collect();
                let built = match built.as_slice() {
                    [] => "there is none yet".to_owned(),
                    some => some.join(", "),
                };
                let build = match VERSIONS.contains(&version.as_str()) {
                    true => format!(", or build it where php{version}-dev is installed"),
                    false => String::new(),
                };
                format!("Write a version that forkyard-php was built for ({built}){build}.")
            }
            Error::NoLibrary(version) => format!(
                "Install PHP's library for embedding (Debian: libphp{version}-embed), or name the one that is there in \
                 application.library."
            ),
            Error::Load(_) | Error::Version(..) => {
                "Name libphp of the pool's version in application.library, not thread-safe and without debugging, or \
                 leave that out to use the one that is installed."
                    .to_owned()
            }
            Error::MemoryFile(_) => {
                "Check that the machine has memory and descriptors to spare, and the service's limits.".to_owned()
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::MemoryFile(error) => Some(error),
            _ => None,
        }
    }
}

impl Php {
    /// Opens libphp `version` (as `8.2`) and the shim that belongs to it.
    pub(crate) fn open(version: &str, library: Option<&Path>) -> Result<Php, Error> {
        let shim = SHIMS.iter().find(|shim| shim.version == version);
        let shim = shim.ok_or_else(|| Error::NotBuilt(version.to_owned()))?;
        let path = match library {
            Some(path) => path.to_owned(),
            None => files::library(version).ok_or_else(|| Error::NoLibrary(version.to_owned()))?,
        };

        let build = build_of(&path)?;
        let is_wanted = build
            .version
            .strip_prefix(version)
            .is_some_and(|rest| rest.starts_with('.'));
        let id = format!("API{},NTS", shim.api);
        if !is_wanted || build.id != id {
            let found = format!("{} ({})", build.version, build.id);
            return Err(Error::Version(path, found, format!("{version} ({id})")));
        }
        // By absolute path, because every libphp has the same SONAME; global, because extensions and the shim resolve
        // their symbols against it.
        Library::open(&path, libc::RTLD_NOW | libc::RTLD_GLOBAL)?;
        let file = memory_file(shim.object).map_err(Error::MemoryFile)?;
        let shim_path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let shim = Library::open(&shim_path, libc::RTLD_NOW | libc::RTLD_LOCAL)?;
        // SAFETY: each symbol has the type that shim.h gives it, and the version below is checked before any other
        // use. The library stays loaded.
        unsafe {
            let shim_version: unsafe extern "C" fn() -> u32 =
                std::mem::transmute(shim.symbol(c"forkyard_shim_version")?);
            assert_eq!(shim_version(), SHIM_VERSION, "shim.h and ffi.rs are of one build");
            Ok(Php {
                version: build.version,
                start: std::mem::transmute::<NonNull<c_void>, StartFn>(shim.symbol(c"forkyard_shim_start")?),
                set_ini: std::mem::transmute::<NonNull<c_void>, SetIniFn>(
                    shim.symbol(c"forkyard_shim_set_ini")?,
                ),
                begin_worker: std::mem::transmute::<NonNull<c_void>, BeginWorkerFn>(
                    shim.symbol(c"forkyard_shim_begin_worker")?,
                ),
                resolves: std::mem::transmute::<NonNull<c_void>, ResolvesFn>(
                    shim.symbol(c"forkyard_shim_resolves")?,
                ),
                serve: std::mem::transmute::<NonNull<c_void>, ServeFn>(shim.symbol(c"forkyard_shim_serve")?),
                report: std::mem::transmute::<NonNull<c_void>, ReportFn>(
                    shim.symbol(c"forkyard_shim_report")?,
                ),
                ini: std::mem::transmute::<NonNull<c_void>, IniFn>(shim.symbol(c"forkyard_shim_ini")?),
                loaded: std::mem::transmute::<NonNull<c_void>, LoadedFn>(
                    shim.symbol(c"forkyard_shim_loaded")?,
                ),
                begin_quiet: std::mem::transmute::<NonNull<c_void>, BeginQuietFn>(
                    shim.symbol(c"forkyard_shim_begin_quiet")?,
                ),
                scripts: std::mem::transmute::<NonNull<c_void>, ScriptsFn>(
                    shim.symbol(c"forkyard_shim_scripts")?,
                ),
                compile: std::mem::transmute::<NonNull<c_void>, CompileFn>(
                    shim.symbol(c"forkyard_shim_compile")?,
                ),
                end_worker: std::mem::transmute::<NonNull<c_void>, EndWorkerFn>(
                    shim.symbol(c"forkyard_shim_end_worker")?,
                ),
                stack: std::mem::transmute::<NonNull<c_void>, StackFn>(shim.symbol(c"forkyard_shim_stack")?),
            })
        }
    }

    /// Module start-up; `false` when it failed. PHP has then written why to standard error, and may also exit by
    /// itself instead of returning.
    pub(crate) fn start(&self, wanted: &Wanted<'_>) -> bool {
        let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        let start = Start {
            php_ini: pointer(wanted.php_ini),
            ini_entries: pointer(wanted.ini_entries),
            executable: pointer(wanted.executable),
            disabled_functions: pointer(wanted.disabled_functions),
            ini_names: wanted.ini_names.map_or(std::ptr::null(), ptr::from_ref),
            no_php_ini: u8::from(wanted.no_php_ini),
            extended_info: u8::from(wanted.extended_info),
        };
        // SAFETY: the strings live longer than the call, which copies them.
        unsafe { (self.start)(&raw const start) == 0 }
    }

    /// Sets an ini value for all requests; `false` when there is no such entry.
    pub(crate) fn set_ini(&self, name: &CStr, value: &CStr, mode: c_int) -> bool {
        // SAFETY: the strings live longer than the call, which copies them; no request is being served.
        unsafe { (self.set_ini)(name.as_ptr(), value.as_ptr(), mode) == 0 }
    }

    /// Leaves an ini value to administrators from now on; `false` when there is no such entry.
    pub(crate) fn hold_ini(&self, name: &CStr) -> bool {
        // SAFETY: the string lives longer than the call; no request is being served.
        unsafe { (self.set_ini)(name.as_ptr(), std::ptr::null(), SYSTEM) == 0 }
    }

    /// Makes PHP ready to serve, in a worker. Says what matters before PHP sees a request.
    pub(crate) fn begin_worker(&self, worker: &Worker) -> Facts {
        let mut facts = Facts {
            expose_php: 0,
            fix_pathinfo: 1,
            discard_path: 0,
            script_path_encoded: 0,
            doc_root: std::ptr::null(),
        };
        // SAFETY: `worker` is copied; its table of functions lives as long as the process.
        unsafe { (self.begin_worker)(worker, &raw mut facts) };
        facts
    }

    /// Whether a path leads to anything. PHP remembers paths for a while (`realpath_cache_ttl`).
    pub(crate) fn resolves(&self, path: &CStr) -> bool {
        // SAFETY: a C string that lives longer than the call; the worker has begun.
        unsafe { (self.resolves)(path.as_ptr()) != 0 }
    }

    /// Serves one request; `false` when PHP can't serve another.
    ///
    /// # Safety
    /// `request` is what the functions of the worker's table take, and nothing else uses it until this returns.
    pub(crate) unsafe fn serve(&self, request: *mut c_void, description: &Description) -> bool {
        // SAFETY: as this function's; the description's strings live longer than the call.
        unsafe { (self.serve)(request, description) == 0 }
    }

    /// Writes to standard output what PHP says of itself; `false` when it could not. It serves nothing afterwards.
    pub(crate) fn report(&self, what: c_int) -> bool {
        // SAFETY: PHP has started and serves no request.
        unsafe { (self.report)(what) == 0 }
    }

    /// An ini value; `None`: there is no such entry.
    pub(crate) fn ini(&self, name: &CStr) -> Option<String> {
        // SAFETY: PHP has started; the name is a C string.
        let value = unsafe { (self.ini)(name.as_ptr()) };
        // SAFETY: not NULL, a C string of PHP's own, copied before anything can change it.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    /// The files that extensions were loaded from.
    pub(crate) fn loaded(&self) -> Vec<PathBuf> {
        unsafe extern "C" fn each(context: *mut c_void, path: *const c_char, length: usize) {
            // SAFETY: the context is the vector below, and the path has this length.
            unsafe {
                let found = &mut *context.cast::<Vec<PathBuf>>();
                let path = std::slice::from_raw_parts(path.cast(), length);
                found.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        let mut found: Vec<PathBuf> = Vec::new();
        // SAFETY: PHP has started; `found` outlives the call and nothing else uses it meanwhile; `each` returns.
        unsafe { (self.loaded)(each, (&raw mut found).cast()) };
        found
    }

    /// Begins a request that says nothing, in a process that serves none; `false` when PHP can't.
    pub(crate) fn begin_quiet(&self) -> bool {
        // SAFETY: PHP has started and serves no request.
        unsafe { (self.begin_quiet)() == 0 }
    }

    /// The scripts that OPcache holds with how often they were run. After [`Php::begin_quiet`].
    pub(crate) fn scripts(&self) -> Vec<(Vec<u8>, i64)> {
        unsafe extern "C" fn each(context: *mut c_void, path: *const c_char, length: usize, hits: i64) {
            // SAFETY: the context is the vector below, and the path has this length.
            unsafe {
                let found = &mut *context.cast::<Vec<(Vec<u8>, i64)>>();
                found.push((std::slice::from_raw_parts(path.cast(), length).to_vec(), hits));
            }
        }
        let mut found: Vec<(Vec<u8>, i64)> = Vec::new();
        // SAFETY: `found` outlives the call and nothing else uses it meanwhile; `each` returns.
        unsafe { (self.scripts)(each, (&raw mut found).cast()) };
        found
    }

    /// Compiles a script and does not run it; `false` when it can't be compiled. After [`Php::begin_quiet`].
    pub(crate) fn compile(&self, path: &CStr) -> bool {
        // SAFETY: a C string that lives longer than the call.
        unsafe { (self.compile)(path.as_ptr()) == 0 }
    }

    /// Where the engine keeps its calls, in this process and all that are forked of it.
    pub(crate) fn stack(&self) -> PhpLayout {
        let mut layout = PhpLayout::default();
        // SAFETY: struct forkyard_shim_stack is the same in C; PHP has started.
        unsafe { (self.stack)(&raw mut layout) };
        layout
    }

    /// Module shutdown, at the end of a worker.
    pub(crate) fn end_worker(&self) {
        // SAFETY: no request is being served, and none will be.
        unsafe { (self.end_worker)() }
    }
}

/// A library opened with dlopen(3), for good.
struct Library(NonNull<c_void>);

impl Library {
    fn open(path: &Path, flags: c_int) -> Result<Library, Error> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::Load(format!("{}: zero byte in path", path.display())))?;
        // SAFETY: a C string and valid flags; the library's initialisers are those of libphp and of our shim.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(handle).map(Library).ok_or_else(load_error)
    }

    fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, Error> {
        // SAFETY: the handle is open, the name a C string.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(load_error)
    }
}

fn load_error() -> Error {
    // SAFETY: dlerror(3) gives NULL or a C string that is valid until the next dl call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Error::Load("dlopen failed".to_owned());
    }
    // SAFETY: not NULL, see above.
    Error::Load(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// What a library says of itself.
struct Build {
    version: String,
    /// As PHP compares it: API number, thread safety, debug build.
    id: String,
}

/// Reads what a library is, before it is run: its functions that tell give nothing before module start-up, or are in
/// newer versions only.
fn build_of(path: &Path) -> Result<Build, Error> {
    let unreadable = |error| Error::Load(format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text_after = |mark: &CStr| -> Option<String> {
        let rest = &bytes[position(&bytes, mark.to_bytes())? + mark.to_bytes().len()..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    match (text_after(c"X-Powered-By: PHP/"), text_after(c"API20")) {
        (Some(version), Some(id)) => Ok(Build {
            version,
            id: format!("API20{id}"),
        }),
        _ => Err(Error::Load(format!("{} is not libphp", path.display()))),
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    // SAFETY: two readable areas with their lengths.
    let found = unsafe {
        libc::memmem(
            bytes.as_ptr().cast(),
            bytes.len(),
            part.as_ptr().cast(),
            part.len(),
        )
    };
    (!found.is_null()).then(|| found as usize - bytes.as_ptr() as usize)
}

/// A file in memory that dlopen(3) can read. The bytes are those that were built together with this executable.
fn memory_file(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    // Asked for since Linux 6.3, unknown before.
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags| {
        // SAFETY: a C string and flags; the result is a descriptor that nobody else owns, or negative.
        unsafe {
            let fd = libc::memfd_create(c"forkyard-php-shim".as_ptr(), flags);
            (fd >= 0)
                .then(|| OwnedFd::from_raw_fd(fd))
                .ok_or_else(std::io::Error::last_os_error)
        }
    };
    let fd = create(libc::MFD_CLOEXEC | MFD_EXEC).or_else(|_| create(libc::MFD_CLOEXEC))?;
    std::io::Write::write_all(&mut std::fs::File::from(fd.try_clone()?), bytes)?;
    Ok(fd)
}
