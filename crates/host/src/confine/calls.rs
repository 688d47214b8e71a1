//! Blocks system calls that web applications don't need and attacks on the kernel, other processes or container limits
//! use. They fail with EPERM.

use super::ConfineError;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const KEY: &str = "confine.deny_system_calls";

/// Missing in libc's headers; the same on all architectures.
const SYS_STATMOUNT: i64 = 457;
const SYS_LISTMOUNT: i64 = 458;
const SYS_LSM_SET_SELF_ATTR: i64 = 460;
const SYS_OPEN_TREE_ATTR: i64 = 467;

#[rustfmt::skip]
const REFUSED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_kcmp, libc::SYS_pidfd_getfd, libc::SYS_process_mrelease,  
    // The kernel.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_kexec_load, libc::SYS_kexec_file_load,
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_syslog, libc::SYS_reboot,
    libc::SYS_acct, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_quotactl, libc::SYS_quotactl_fd,
    libc::SYS_personality, libc::SYS_lookup_dcookie, libc::SYS_nfsservctl, libc::SYS_vhangup,
    SYS_LSM_SET_SELF_ATTR,
    libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register,
    // Keys.
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    // Mounts, roots and namespaces.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_move_mount,
    libc::SYS_open_tree, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick,
    libc::SYS_mount_setattr, SYS_OPEN_TREE_ATTR, SYS_STATMOUNT, SYS_LISTMOUNT, libc::SYS_unshare, libc::SYS_setns, libc::SYS_open_by_handle_at, libc::SYS_fanotify_init,
    // Time and host name.
    libc::SYS_clock_settime, libc::SYS_settimeofday, libc::SYS_clock_adjtime, libc::SYS_adjtimex,
    libc::SYS_sethostname, libc::SYS_setdomainname,
];
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

const NAME_SPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// A list of blocked ones would have to grow with the kernel.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Alternative numbers of the calls (x32 ABI, __X32_SYSCALL_BIT).
#[cfg(target_arch = "x86_64")]
const ALIASES: &[i64] = &[0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const ALIASES: &[i64] = &[0];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

pub(super) fn check() -> Result<(), ConfineError> {
    if !std::path::Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        let reason = "this kernel has no system call filters (CONFIG_SECCOMP_FILTER); leave it out";
        return Err(ConfineError::new(KEY, reason));
    }
    programs().map(drop)
}

/// Sets no_new_privs, because a setuid program would inherit the filter.
pub(super) fn deny() -> Result<(), ConfineError> {
    for program in programs()? {
        seccompiler::apply_filter(program).map_err(|error| ConfineError::new(KEY, error.to_string()))?;
    }
    Ok(())
}

/// Compiling takes a millisecond; forks inherit the result.
fn programs() -> Result<&'static [BpfProgram; 2], ConfineError> {
    static PROGRAMS: OnceLock<[BpfProgram; 2]> = OnceLock::new();
    match PROGRAMS.get() {
        Some(programs) => Ok(programs),
        None => {
            let compiled = compile()?;
            Ok(PROGRAMS.get_or_init(|| compiled))
        }
    }
}

pub(super) fn prepare() {
    if let Err(error) = programs() {
        log::debug!("no filter of system calls can be prepared: {error}");
    }
}

fn compile() -> Result<[BpfProgram; 2], ConfineError> {
    let failed = |error: seccompiler::BackendError| ConfineError::new(KEY, error.to_string());
    // A filter can't inspect clone3's flags. After ENOSYS libraries use clone(2).
    let clone3: Rules = spread([(libc::SYS_clone3, Vec::new())]);
    let denied = |rules, errno: i32| {
        program(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32)).map_err(failed)
    };
    Ok([
        denied(refused().map_err(failed)?, libc::EPERM)?,
        denied(clone3, libc::ENOSYS)?,
    ])
}

fn refused() -> Result<Rules, seccompiler::BackendError> {
    let plain = REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new()));
    let mut rules: Vec<(i64, Vec<SeccompRule>)> = plain.collect();
    let mut clone = Vec::new();
    for bit in (0..32).map(|shift| 1_u64 << shift) {
        if NAME_SPACES as u64 & bit != 0 {
            let masked = SeccompCmpOp::MaskedEq(bit);
            let is_set = SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, bit)?;
            clone.push(SeccompRule::new(vec![is_set])?);
        }
    }
    rules.push((libc::SYS_clone, clone));
    let others = FAMILIES
        .iter()
        .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family as u64));
    let others = SeccompRule::new(others.collect::<Result<_, _>>()?)?;
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.push((call, vec![others.clone()]));
    }
    Ok(spread(rules))
}

fn spread(rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>) -> Rules {
    let named = |(call, rules): (i64, Vec<SeccompRule>)| {
        ALIASES.iter().map(move |alias| (call | alias, rules.clone()))
    };
    rules.into_iter().flat_map(named).collect()
}

/// `others`: what happens to calls without a rule.
pub(super) fn program(
    rules: Rules,
    others: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, others, matched, arch)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_are_valid_programs() {
        let [refused, clone3] = programs().unwrap();
        assert!(
            std::ptr::eq(refused, &raw const programs().unwrap()[0]),
            "compiled once"
        );
        assert!(refused.len() < 4096 && clone3.len() < refused.len());
    }
}
