//! The virtual machine of the bench, and the plugin that counts in it.
//!
//! QEMU emulates one processor, whose clock advances by a nanosecond with each instruction (`-icount shift=0`), so that
//! neither the load of the host nor its speed changes what is counted. Its NVMe disks have no contents: one completes
//! reads at once, another after a millisecond, and a third, at once, is behind a controller with a virtual function.

use super::counted::Counted;
use super::inside::{ADDRESS, DISK_BYTES, FAST, INSIDE, SLOW};
use crate::child;
use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::programs::executables::hash;
use crate::programs::require;
use crate::workspace::{Workspace, target};
use bywash_support::guest::system::VFIO;
use bywash_support::guest::{Guest, Missing};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Source of the plugin.
const PLUGIN: &str = include_str!("../../programs/count.c");
/// Greatest time that the virtual machine runs, in seconds.
const SECONDS_MAX: u32 = 900;
/// Interval between two looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// Greatest time that QEMU takes to end.
const END: Duration = Duration::from_secs(20);

/// Counts the instructions of so many operations of each path.
///
/// # Errors
/// [`Error::Missing`] or [`Error::Unavailable`] if the compiler, QEMU, a kernel or a program cannot be had;
/// [`Error::Failed`] if something in the virtual machine fails; [`Error::Io`] if files cannot be written.
pub fn count(workspace: &Workspace, operations: usize, told: &mut dyn FnMut(&str)) -> Result<Counted, Error> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Error::Unavailable(
            "instructions are counted in a machine with x86-64 processors only".into(),
        ));
    }
    let plugin = compiled(workspace.programs())?;
    let output = workspace.run().join("counts");
    let mut machine = describe(workspace, &plugin, &output)?.try_boot(&script(operations)).map_err(absent)?;
    let mut lines = Vec::new();
    loop {
        interrupt::check()?;
        let Some(line) = machine.hear(LOOK).map_err(broken)? else { continue };
        if line == "end" {
            break;
        }
        if let Some(name) = line.strip_prefix("series ") {
            told(name);
        }
        lines.push(line);
    }
    if !machine.has_ended(END) {
        return Err(broken("QEMU did not end".into()));
    }
    let text = fs::read_to_string(&output).doing("read", &output)?;
    Counted::read(&lines, &text)
}

fn absent(missing: Missing) -> Error {
    Error::Unavailable(missing.to_string())
}

fn broken(how: String) -> Error {
    Error::failed("the virtual machine", format!("failed: {how}"))
}

/// Returns the plugin, compiled if it is not there yet.
fn compiled(folder: &Path) -> Result<PathBuf, Error> {
    let plugin = folder.join(format!("count-{:016x}.so", hash(PLUGIN.as_bytes())));
    if plugin.is_file() {
        return Ok(plugin);
    }
    let compiler = require("cc", "gcc")?;
    let source = folder.join("count.c");
    fs::write(&source, PLUGIN).doing("write", &source)?;
    let fresh = folder.join(format!("count-{}", std::process::id()));
    let mut compile = Command::new(compiler);
    child::run(compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&fresh).arg(&source))?;
    fs::rename(&fresh, &plugin).doing("move into place", &plugin)?;
    Ok(plugin)
}

fn describe(workspace: &Workspace, plugin: &Path, output: &Path) -> Result<Guest, Error> {
    let disk =
        |name, more: &str| format!("driver=null-co,node-name={name},size={DISK_BYTES},read-zeroes=on{more}");
    let (fast, slow) = (disk(FAST, ""), disk(SLOW, ",latency-ns=1000000"));
    let granted = disk("granted", "");
    let primary = "nvme,id=primary,serial=primary,subsys=subsystem,bus=root,max_ioqpairs=4,msix_qsize=4,sriov_max_vfs=1,\
                   sriov_vq_flexible=2,sriov_vi_flexible=2";
    let attached = |name, slot| format!("nvme,drive={name},serial={name},addr={slot}");
    // A comma in a path is written twice.
    let path = |path: &Path| path.to_string_lossy().replace(',', ",,");
    let plugin = format!("{},out={}", path(plugin), path(output));
    // A kernel that tests have fetched is used, too.
    let folder = target().unwrap_or_else(|| workspace.programs().to_path_buf());
    let guest = Guest::without_disk()
        .hardware(&["-icount", "shift=0", "-plugin", &plugin])
        .hardware(&["-device", "intel-iommu,intremap=on", "-blockdev", &fast, "-blockdev", &slow])
        .hardware(&["-device", &attached(FAST, 4), "-device", &attached(SLOW, 5)])
        .hardware(&["-device", "pcie-root-port,id=root,chassis=1,slot=1,addr=6", "-blockdev", &granted])
        .hardware(&["-device", "nvme-subsys,id=subsystem,nqn=subsystem", "-device", primary])
        .hardware(&["-device", "nvme-ns,drive=granted,bus=primary,nsid=1,shared=on,detached=on"])
        .modules(&VFIO)
        .program("bywash", &child::this_program()?)
        .kernel_folder(&folder)
        .seconds_max(SECONDS_MAX);
    let options = ["intel_iommu=on", "iommu.strict=0", "nvme.poll_queues=1", "tsc=reliable", INSIDE];
    Ok(options.into_iter().fold(guest, Guest::kernel_option))
}

fn script(operations: usize) -> String {
    format!(
        r#"
inside() {{ /sbin/bywash bench peer nvme "$@" || fail "$*"; }}
inside kernel {operations}
step /sbin/bywash nvme bind {ADDRESS}
inside driver {operations}
served() {{
    rm -f $3
    /sbin/bywash bench peer nvme $1 &
    server=$!
    count=0
    until [ -S $3 ]; do
        count=$((count + 1)); [ $count -lt 600 ] || fail "$1 serves nothing"
        sleep 0.1
    done
    inside $2 {operations}
    kill -9 $server
    wait $server || true
}}
served serve client /tmp/bench.socket
served serve-vhost frontend /tmp/bench.vhost
served grant direct /tmp/bench.grant
"#
    )
}
