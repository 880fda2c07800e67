//! Images with setuid bits, file capabilities, device nodes, overlay attributes and whiteouts: the import
//! removes them, and they have no effect in a box if root adds them to the stored image.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::support::actor::{Identity, Mode};
use tests::support::canary::Canary;
use tests::support::process::run;
use tests::support::scratch::give;

use crate::modes::{as_root, in_both_modes};
use crate::rootfs::Store;

in_both_modes!(import_drops_privileges, import_of_rerouted_entries_changes_nothing_outside);
as_root!(planted_privileges_have_no_effect);

/// Prints its effective ids and capabilities, then for each argument whether it can be opened.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2] = { { 0 } };
    syscall(SYS_capget, &head, sets);
    printf("%d %d %x\n", (int)geteuid(), (int)getegid(), sets[0].effective);
    for (int at = 1; at < count; at++)
        printf("%s %s\n", words[at], open(words[at], O_RDONLY) < 0 ? strerrorname_np(errno) : "opened");
    return 0;
}
"#;

/// Writes an archive of a root file system with two copies of the program, and with entries and
/// attributes that could give it privileges.
const CRAFT: &str = r"
import base64, io, struct, sys, tarfile
program = open(sys.argv[2], 'rb').read()
capability = struct.pack('<5I', 0x02000001, (1 << 13) | (1 << 21) | (1 << 1), 0, 0, 0)
with tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT) as archive:
    def add(name, kind=tarfile.REGTYPE, mode=0o755, content=b'', device=(0, 0), **pax):
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.size = kind, mode, len(content)
        member.devmajor, member.devminor = device
        member.pax_headers = {key.replace('__', '.'): value for key, value in pax.items()}
        archive.addfile(member, io.BytesIO(content))
    add('bin', tarfile.DIRTYPE, 0o6755, SCHILY__xattr__trusted__overlay__opaque='y', SCHILY__xattr__user__overlay__opaque='y')
    add('bin/setuid', mode=0o6755, content=program)
    add('bin/capable', content=program, SCHILY__xattr__security__capability=capability.decode(),
        LIBARCHIVE__xattr__security__capability=base64.b64encode(capability).decode(),
        SCHILY__xattr__trusted__overlay__redirect='/etc', SCHILY__xattr__trusted__overlay__metacopy='')
    add('data', tarfile.DIRTYPE)
    add('data/zero', tarfile.CHRTYPE, 0o666, device=(1, 5))
    add('data/disk', tarfile.BLKTYPE, 0o666, device=(7, 0))
    add('data/whiteout', tarfile.CHRTYPE, 0o666, device=(0, 0))
    add('data/pipe', tarfile.FIFOTYPE, 0o666)
    add('data/.wh.kept', content=b'')
    add('data/.wh..wh..opq', content=b'')
    add('data/kept', content=b'kept')
";

/// CAP_NET_RAW, CAP_SYS_ADMIN and CAP_DAC_OVERRIDE, as in the archive.
const PLANT: &str = r"
import os, struct, sys
capability = struct.pack('<5I', 0x02000001, (1 << 13) | (1 << 21) | (1 << 1), 0, 0, 0)
os.setxattr(sys.argv[1] + '/capable', 'security.capability', capability)
os.umask(0)
os.mknod(sys.argv[1] + '/zero', 0o020666, os.makedev(1, 5))
";

fn python(script: &str, arguments: &[&Path]) {
    let status = Command::new("/usr/bin/python3").args(["-I", "-c", script]).args(arguments).status().unwrap();
    assert!(status.success());
}

/// Compiles the program statically, because the image has no libraries.
fn compile(store: &Store) -> PathBuf {
    let (source, program) = (store.scratch.join("program.c"), store.scratch.join("program"));
    fs::write(&source, PROGRAM).unwrap();
    let gcc = Command::new("gcc").args(["-O1", "-static", "-o"]).args([&program, &source]).status().unwrap();
    assert!(gcc.success());
    program
}

fn import(store: &Store) {
    let archive = store.scratch.join("hostile.tar");
    python(CRAFT, &[&archive, &compile(store)]);
    give(&archive, store.mode.identity()).unwrap();
    let listed = Command::new("tar").arg("-tvf").arg(&archive).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("-rwsr-sr-x") && listed.contains("crw-rw-rw-"), "control: {listed}");
    let outcome = store.image(&["import", "hostile", archive.to_str().unwrap()]);
    assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
}

/// Every path below a directory.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| [vec![path.clone()], if path.is_dir() { walk(&path) } else { Vec::new() }].concat())
        .collect()
}

fn attributes(path: &Path) -> String {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    String::from_utf8_lossy(&names[..length]).into_owned()
}

fn import_drops_privileges(mode: Mode) {
    let store = Store::empty(mode);
    import(&store);
    let root = store.rootfs("hostile");
    for path in walk(&root) {
        let metadata = path.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        assert!(kind.is_file() || kind.is_dir(), "{} is neither a file nor a directory", path.display());
        assert!(!kind.is_char_device() && !kind.is_block_device() && !kind.is_fifo());
        assert_eq!(metadata.permissions().mode() & 0o6000, 0, "{}", path.display());
        let attributes = attributes(&path);
        let is_special = ["capability", "overlay"].iter().any(|word| attributes.contains(word));
        assert!(!is_special, "{}: {attributes}", path.display());
    }
    // Whiteout names have a meaning only in layers. In a complete root file system they delete nothing.
    assert_eq!(fs::read(root.join("data/kept")).unwrap(), b"kept");
    for program in ["/bin/setuid", "/bin/capable"] {
        let outcome = store.run(&["--image", "hostile", "--", program, "/data/kept", "/data/zero", "/data/disk"]);
        assert_eq!(
            outcome.text(),
            "1000 1000 0\n/data/kept opened\n/data/zero ENOENT\n/data/disk ENOENT\n",
            "{}",
            outcome.describe()
        );
    }
}

/// Sets the setuid bit and capabilities on the two copies of the program in a directory, and creates a
/// device.
fn add_privileges(directory: &Path) {
    chown(directory.join("setuid"), Some(0), Some(0)).unwrap();
    fs::set_permissions(directory.join("setuid"), fs::Permissions::from_mode(0o6755)).unwrap();
    python(PLANT, &[directory]);
}

fn planted_privileges_have_no_effect(mode: Mode) {
    let store = Store::empty(mode);
    import(&store);
    // Control: outside of a box the same files give an ordinary user root's ids, capabilities and the device.
    let outside = store.scratch.directory("outside").unwrap();
    for name in ["setuid", "capable"] {
        fs::copy(store.scratch.join("program"), outside.join(name)).unwrap();
        fs::set_permissions(outside.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
    add_privileges(&outside);
    let zero = outside.join("zero");
    let run_outside = |name: &str| {
        let mut command = Identity::Unprivileged.command(outside.join(name));
        command.arg(&zero);
        run(command, None).unwrap().text()
    };
    assert!(run_outside("setuid").starts_with("0 0 "), "control: {}", run_outside("setuid"));
    assert!(run_outside("capable").contains(" 202002\n"), "control: {}", run_outside("capable"));
    assert!(run_outside("capable").ends_with("zero opened\n"), "control: {}", run_outside("capable"));

    add_privileges(&store.rootfs("hostile").join("bin"));
    for program in ["/bin/setuid", "/bin/capable"] {
        let outcome = store.run(&["--image", "hostile", "--", program, "/bin/zero"]);
        let text = outcome.text();
        // The kernel may also refuse to run a program with capabilities.
        assert!(text.is_empty() || text.starts_with("1000 1000 0\n"), "{}", outcome.describe());
        assert!(!text.contains("opened"), "{}", outcome.describe());
    }
    let ran = store.run(&["--image", "hostile", "--", "/bin/setuid"]);
    assert_eq!(ran.text(), "1000 1000 0\n", "{}", ran.describe());
}

/// Entries that escape through a pax header with another name or link target, through a directory that is
/// replaced by a link, or through a hard link to a symbolic link. As a control, an unpacker without checks
/// changes the canary.
fn import_of_rerouted_entries_changes_nothing_outside(mode: Mode) {
    const CRAFT: &str = r"
import io, sys, tarfile
case, directory, target = sys.argv[2:]
with tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT) as archive:
    def add(name, kind=tarfile.REGTYPE, link='', content=b'', pax={}):
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.size, member.linkname = kind, 0o755, len(content), link
        member.pax_headers = pax
        archive.addfile(member, io.BytesIO(content))
    add('bin', tarfile.DIRTYPE)
    add('bin/program', content=b'x')
    if case == 'pax path':
        add('harmless', content=b'gone', pax={'path': target})
    elif case == 'pax linkpath':
        add('link', tarfile.SYMTYPE, 'bin', pax={'linkpath': directory})
        add('link/canary', content=b'gone')
    elif case == 'swapped directory':
        add('place', tarfile.DIRTYPE)
        add('place/file', content=b'x')
        add('place', tarfile.SYMTYPE, directory)
        add('place/canary', content=b'gone')
    elif case == 'hard link to link':
        add('first', tarfile.SYMTYPE, target)
        add('second', tarfile.LNKTYPE, 'first')
        add('second', content=b'gone')
";
    // An unpacker that replaces directories by links and writes through links.
    const NAIVE: &str = r"
import os, shutil, sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    for member in archive:
        place = os.path.join(sys.argv[2], member.name)
        if member.issym() and os.path.isdir(place):
            shutil.rmtree(place)
        if member.isfile():
            with open(place, 'wb') as file:
                file.write(archive.extractfile(member).read())
        else:
            archive.extract(member, sys.argv[2])
";
    for case in ["pax path", "pax linkpath", "swapped directory", "hard link to link"] {
        let store = Store::empty(mode);
        let outside = store.scratch.directory("outside").unwrap();
        let canary = Canary::plant(&store.scratch, "outside/canary").unwrap();
        let archive = store.scratch.join("rerouted.tar");
        python(CRAFT, &[&archive, Path::new(case), &outside, canary.path()]);
        give(&archive, mode.identity()).unwrap();
        let outcome = store.image(&["import", "rerouted", archive.to_str().unwrap()]);
        assert_eq!(canary.changed(), None, "{case}: {}", outcome.describe());
        let naive = store.scratch.directory("naive").unwrap();
        python(NAIVE, &[&archive, &naive]);
        assert!(canary.changed().is_some(), "control: {case} does not reach the canary");
    }
}
