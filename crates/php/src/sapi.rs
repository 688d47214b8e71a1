//! Answers requests with PHP: finds the script and passes the request to the shim.

use crate::ffi::{self, Description, Facts, Php, WorkerCalls};
use fastcgi::Params;
use forkyard_config::Pool;
use forkyard_config::php::is_before;
use forkyard_runtimes::abi;
use forkyard_runtimes::php::request_settings::{Rule, Verdict};
use forkyard_runtimes::php::script::{self, FileSystem, Rules, Script};
use forkyard_runtimes::php::status;
use forkyard_runtimes::script_roots::Within;
use forkyard_scoreboard::slot_writer;
use forkyard_sys::process::exit_now;
use forkyard_worker::{RefusalCause, Request, Runtime, Settings, Unrun};
use nix::NixPath;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::{Mutex, PoisonError};

const EXIT_SOFTWARE: i32 = 70;
const RUNS: u8 = 0;
const WRONG_ENDING: u8 = 1;
const ELSEWHERE: u8 = 2;
const ZERO_BYTE: u8 = 3;
const LEADS_OUT: u8 = 4;

pub(crate) struct PhpRuntime<'p> {
    php: &'p Php,
    rules: Rules,
    limit_extensions: Vec<String>,
    within: Option<Within>,
    only_script: Option<CString>,
    builtin_paths: Vec<Vec<u8>>,
    powered_by: String,
}

impl<'p> PhpRuntime<'p> {
    pub(crate) fn begin(php: &'p Php, settings: &Settings, stderr_caught: bool) -> PhpRuntime<'p> {
        let pool = &settings.pool;
        ffi::keep_timer(true);
        let facts = php.begin_worker(&WorkerCalls {
            api: abi::forkyard_api_v1().cast(),
            status: write_status,
            may_set: ask_rule(&settings.pool).then_some(may_set),
            later_status,
            unopened,
            included,
            log: write_log,
            forget_timer: ffi::forkyard_timer_forget,
            log_limit: u32::try_from(settings.log_limit).unwrap_or(u32::MAX),
            log_level: settings.log_level as u8,
            stderr_caught: u8::from(stderr_caught),
        });
        let own = pool.application.php();
        let script_root = own.and_then(|own| own.script_root.as_ref());
        let paths = [&pool.pages.status_path, &pool.pages.ping_path];
        PhpRuntime {
            php,
            rules: rules(&facts, &php.version),
            limit_extensions: own.map(|own| own.limit_extensions.clone()).unwrap_or_default(),
            only_script: own
                .and_then(|own| own.worker.as_ref())
                .and_then(|worker| CString::new(worker.path.as_os_str().as_bytes()).ok()),
            within: script_root.map(|root| Within::new(&root.path, &root.names)),
            builtin_paths: paths
                .into_iter()
                .flatten()
                .map(|path| path.clone().into_bytes())
                .collect(),
            powered_by: match facts.expose_php {
                0 => String::new(),
                _ => format!("X-Powered-By: PHP/{}\r\n", php.version),
            },
        }
    }

    fn denial(&self, request: &Request<'_>, script: Script, path: Option<&[u8]>) -> u8 {
        if script.has_zero_byte {
            return ZERO_BYTE;
        }
        let Some(path) = path else {
            return RUNS;
        };
        if !script::is_allowed(path, &self.limit_extensions) {
            return WRONG_ENDING;
        }
        let is_elsewhere =
            |within: &Within| within.excludes(path, |name| script::text(request.params(), name.as_bytes()));
        match self.within.as_ref().is_some_and(is_elsewhere) {
            true => ELSEWHERE,
            false if request.leads_out(path) => LEADS_OUT,
            false => RUNS,
        }
    }

    fn answer_builtin(&self, request: &mut Request<'_>, uri: &[u8], script: &[u8]) -> bool {
        let text = |name: &[u8]| script::text(request.params(), name).unwrap_or_default().to_vec();
        let (method, query) = (text(b"REQUEST_METHOD"), text(b"QUERY_STRING"));
        let content_length = u64::try_from(length(&text(b"CONTENT_LENGTH"))).unwrap_or(0);
        request.describe(&slot_writer::Description {
            method: &method,
            uri,
            query: &query,
            script,
            user: b"",
            content_length,
        });
        request.answer_builtin(uri, self.powered_by.as_bytes())
    }
}

impl PhpRuntime<'_> {
    /// # Safety
    /// The description's data lives until this returns.
    unsafe fn serve(&self, request: &mut Request<'_>, description: &Description) {
        // SAFETY: the handle is valid and `request` is not used until PHP returns; the caller's promise.
        let is_well = unsafe { self.php.serve(abi::handle(request), description) };
        if !is_well {
            let _ = request.finish();
            exit_now(EXIT_SOFTWARE);
        }
    }

    fn answer_by_worker_script(&self, request: &mut Request<'_>) {
        let Some(script) = &self.only_script else { return };
        if self.answers(request, script) {
            return;
        }
        self.fix_up_for_script(request);
        let description = self.describe_for_script(request.params(), script);
        // SAFETY: it points to the parameters, which do not change, and to the script's name.
        unsafe { self.serve(request, &description) };
    }

    /// Corrects the parameters of web servers such as Apache. If the path is not a file they stay as received, because
    /// the worker script answers every path.
    pub(crate) fn fix_up_for_script(&self, request: &mut Request<'_>) {
        let params = request.params_mut();
        let is_scripts = |path: &[u8]| {
            self.only_script
                .as_ref()
                .is_some_and(|own| own.to_bytes() == path)
        };
        if params.get(b"PATH_INFO").is_none() && params.get(b"SCRIPT_FILENAME").is_some_and(is_scripts) {
            return;
        }
        let mut fixed = params.clone();
        let disk = Disk::default();
        let script = script::fix_up(&mut fixed, &self.rules, &disk);
        let path = script.path.and_then(|name| fixed.get(name));
        if path.is_some_and(|path| disk.is_file(path)) {
            *params = fixed;
        }
    }

    pub(crate) fn answers(&self, request: &mut Request<'_>, script: &CStr) -> bool {
        let uri = request.param(b"SCRIPT_NAME");
        if !self.builtin_paths.iter().any(|path| path == uri) {
            return false;
        }
        let uri = uri.to_vec();
        self.answer_builtin(request, &uri, script.to_bytes())
    }

    pub(crate) fn describe_for_script(&self, params: &Params, script: &CStr) -> Description {
        describe(params, true, b"SCRIPT_NAME", script.as_ptr())
    }
}

impl Runtime for PhpRuntime<'_> {
    fn answer(&mut self, request: &mut Request<'_>) {
        ffi::begin_request(request);
        if self.only_script.is_some() {
            return self.answer_by_worker_script(request);
        }
        let script = script::fix_up(request.params_mut(), &self.rules, &Files(self.php));
        let params = request.params();
        if script.is_named && !self.builtin_paths.is_empty() && params.get(b"REQUEST_METHOD").is_some() {
            // Not as a C string: "/status" followed by a zero byte is another path to the web server.
            let uri = params.get(script.uri).unwrap_or_default();
            if self.builtin_paths.iter().any(|path| path == uri) {
                let uri = uri.to_vec();
                let path = script.path.and_then(|name| script::text(params, name));
                let path = path.unwrap_or_default().to_vec();
                if self.answer_builtin(request, &uri, &path) {
                    return;
                }
            }
        }
        let path = script.path.and_then(|name| request.params().get(name));
        let denied = self.denial(request, script, path);
        let is_run = denied == RUNS && path.is_some();
        if !is_run {
            if let Some(unrun) = unrun(request.params(), script, denied) {
                request.refuse_script(&unrun);
            }
        }
        let names_files = is_run && request.looks_at_files();
        let params = request.params();
        let path = script.path.and_then(|name| params.get_with_nul(name));
        let description = Description {
            names_files: u8::from(names_files),
            status: if path.is_some() || !script.is_named {
                200
            } else {
                404
            },
            denied,
            ..describe(
                params,
                script.is_named,
                script.uri,
                path.map_or(ptr::null(), |path| path.as_ptr().cast()),
            )
        };
        // SAFETY: the description points to the parameters, which do not change.
        unsafe { self.serve(request, &description) };
    }
}

fn unrun(params: &Params, script: Script, denied: u8) -> Option<Unrun> {
    params.get(b"REQUEST_METHOD")?;
    let text = |name: &[u8]| script::text(params, name);
    let named = script.path.and_then(text);
    let uri = || {
        text(b"REQUEST_URI")
            .or_else(|| text(b"SCRIPT_NAME"))
            .unwrap_or_default()
    };
    let sent = [
        b"ORIG_SCRIPT_FILENAME".as_slice(),
        b"SCRIPT_FILENAME",
        b"PATH_TRANSLATED",
    ];
    match (denied, named) {
        (ZERO_BYTE, _) => None,
        (WRONG_ENDING, Some(path)) if !path.is_empty() => Some(Unrun::new(RefusalCause::Ending, path)),
        (ELSEWHERE | LEADS_OUT, Some(path)) => Some(Unrun::new(RefusalCause::Outside, path)),
        _ => match sent.into_iter().filter_map(text).find(|path| !path.is_empty()) {
            Some(path) => Some(Unrun::look(path, text(b"DOCUMENT_ROOT"))),
            None => Some(Unrun::new(RefusalCause::Unnamed, uri())),
        },
    }
}

/// `is_named`: the parameters name a script. `uri`: the parameter with its path in the URI.
fn describe(params: &Params, is_named: bool, uri: &[u8], script: *const c_char) -> Description {
    let other =
        |value: Option<&[u8]>| value.map_or(ptr::null(), |with_nul| with_nul.as_ptr().cast::<c_char>());
    let named = |value: Option<&[u8]>| other(value.filter(|_| is_named));
    let content_length = params.get(b"CONTENT_LENGTH").filter(|_| is_named);
    let content_type = match params.get_with_nul(b"CONTENT_TYPE") {
        None if is_named => c"".as_ptr(),
        value => named(value),
    };
    Description {
        method: other(params.get_with_nul(b"REQUEST_METHOD")),
        query_string: named(params.get_with_nul(b"QUERY_STRING")),
        request_uri: named(params.get_with_nul(uri)),
        content_type,
        script,
        authorization: named(params.get_with_nul(b"HTTP_AUTHORIZATION")),
        cookies: other(params.get_with_nul(b"HTTP_COOKIE")),
        document_root: other(params.get_with_nul(b"DOCUMENT_ROOT")),
        php_value: other(params.get_with_nul(b"PHP_VALUE")),
        php_admin_value: other(params.get_with_nul(b"PHP_ADMIN_VALUE")),
        content_length: content_length.map_or(0, length),
        status: 200,
        denied: RUNS,
        names_files: 0,
    }
}

/// The shim's `status`: writes the value of `fpm_get_status()`.
///
/// # Safety
/// `request` is the handle of a current request; `buffer` has room for `size` bytes.
unsafe extern "C" fn write_status(request: *const c_void, buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: the handle's request lives until PHP returns. PHP calls this while the request's owner waits, so nothing
    // else uses it.
    let request = unsafe { &*request.cast::<Request<'_>>() };
    let json = status::fpm_get_status(&request.pool_status()).into_bytes();
    if json.len() > size {
        return 0;
    }
    // SAFETY: there is room, and PHP's buffer does not overlap ours.
    unsafe {
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(json.as_ptr(), json.len())
    };
    json.len()
}

/// The shim's `log`: writes PHP's line to the daemon's log.
///
/// # Safety
/// The text has this length.
unsafe extern "C" fn write_log(level: c_int, text: *const c_char, length: usize) {
    // SAFETY: the caller's promise.
    let text = unsafe { std::slice::from_raw_parts(text.cast(), length) };
    let level = match level {
        0 => log::Level::Debug,
        1 => log::Level::Info,
        2 => log::Level::Warn,
        _ => log::Level::Error,
    };
    log::log!(level, "{}", String::from_utf8_lossy(text));
}

static RULE: Mutex<Option<Rule>> = Mutex::new(None);

fn ask_rule(pool: &Pool) -> bool {
    let Some(php) = pool.application.php() else {
        return false;
    };
    let held = php.php_admin_value.iter().map(|(name, _)| name.clone());
    let rule = Rule::new(php.request_settings.clone(), held.collect());
    let is_open = rule.is_open();
    *RULE.lock().unwrap_or_else(PoisonError::into_inner) = Some(rule);
    !is_open
}

/// The shim's `later_status`: sets a status that came after the headers.
///
/// # Safety
/// `request` is the handle of a current request.
unsafe extern "C" fn later_status(request: *mut c_void, status: u32) {
    // SAFETY: as in `write_status`.
    let request = unsafe { &mut *request.cast::<Request<'_>>() };
    if let Ok(status) = u16::try_from(status) {
        request.log_status(status);
    }
}

/// The shim's `unopened`: a script could not be opened.
///
/// # Safety
/// `request` is the handle of a current request; `path` is a C string.
unsafe extern "C" fn unopened(request: *mut c_void, path: *const c_char, forbidden: u8) {
    // SAFETY: as in `write_status`, and the caller's promise.
    let (request, path) = unsafe { (&mut *request.cast::<Request<'_>>(), CStr::from_ptr(path)) };
    let root = request.params().get(b"DOCUMENT_ROOT").map(<[u8]>::to_vec);
    let unrun = match forbidden {
        0 => Unrun::look(path.to_bytes(), root.as_deref()),
        _ => Unrun::new(RefusalCause::Outside, path.to_bytes()),
    };
    request.refuse_script(&unrun);
}

/// The shim's `included`: a file that the request has included.
///
/// # Safety
/// `request` is the handle of a current request; `path` has this length.
unsafe extern "C" fn included(request: *mut c_void, path: *const c_char, length: usize) {
    // SAFETY: as in `write_status`, and the caller's promise.
    let (request, path) = unsafe {
        (
            &*request.cast::<Request<'_>>(),
            std::slice::from_raw_parts(path.cast(), length),
        )
    };
    request.included(path);
}

/// The shim's `may_set`: whether a request may set this. Logs refusals.
///
/// # Safety
/// `name` is a C string.
unsafe extern "C" fn may_set(name: *const c_char) -> u8 {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let mut rule = RULE.lock().unwrap_or_else(PoisonError::into_inner);
    match rule.as_mut().map(|rule| rule.judge(&name)) {
        Some(Verdict::Set) => 1,
        Some(Verdict::Refuse(text)) => {
            if !text.is_empty() {
                log::warn!("{text}");
            }
            0
        }
        None => 0,
    }
}

fn length(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0_i64, |sum, byte| {
            sum.saturating_mul(10)
                .saturating_add(i64::from(byte - b'0') * sign)
        })
}

fn rules(facts: &Facts, version: &str) -> Rules {
    let (follows_8_4, follows_8_5) = (!is_before(version, "8.4"), !is_before(version, "8.5"));
    let is_encoded = facts.script_path_encoded != 0;
    let doc_root = (!facts.doc_root.is_null()).then(|| {
        // SAFETY: PHP gives a C string, which is copied before anything can change it.
        unsafe { CStr::from_ptr(facts.doc_root) }.to_bytes().to_vec()
    });
    Rules {
        fix_pathinfo: facts.fix_pathinfo != 0,
        discard_path: facts.discard_path != 0,
        doc_root,
        decode_script_path: follows_8_5 && !is_encoded,
        decode_path_info: follows_8_4 && (!follows_8_5 || is_encoded),
    }
}

struct Files<'p>(&'p Php);

impl FileSystem for Files<'_> {
    fn exists(&self, path: &[u8]) -> bool {
        path.with_nix_path(|path| self.0.resolves(path)).unwrap_or(false)
    }

    fn is_file(&self, path: &[u8]) -> bool {
        std::fs::metadata(OsStr::from_bytes(path)).is_ok_and(|entry| entry.is_file())
    }
}

/// File checks without PHP's cache, which a snapshot does not keep between requests. Looks at a path once if it is
/// asked for it again.
#[derive(Default)]
struct Disk {
    last: RefCell<(Vec<u8>, Option<FileType>)>,
}

impl Disk {
    fn look(&self, path: &[u8]) -> Option<FileType> {
        let mut last = self.last.borrow_mut();
        if path.is_empty() || last.0 != path {
            let kind = std::fs::metadata(OsStr::from_bytes(path)).map(|entry| entry.file_type());
            *last = (path.to_vec(), kind.ok());
        }
        last.1
    }
}

impl FileSystem for Disk {
    fn exists(&self, path: &[u8]) -> bool {
        self.look(path).is_some()
    }

    fn is_file(&self, path: &[u8]) -> bool {
        self.look(path).is_some_and(|kind| kind.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn lengths_are_read_as_c_reads_them() {
        assert_eq!(length(b"17"), 17);
        assert_eq!(length(b" 17x"), 17);
        assert_eq!(length(b"-3"), -3);
        assert_eq!(length(b""), 0);
        assert_eq!(length(b"99999999999999999999"), i64::MAX);
    }
}
