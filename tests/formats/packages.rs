//! Packages of RPM and Debian, made by their tools, mounted through the kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, have};
use crate::trees::{attributes, small, sums, told};

const COMPARE: Compare = Compare { skip_folder_times: true, holes: false, whole_seconds: true };

const SPEC: &str = r"Name: x
Version: 1.0
Release: 1
Summary: x
License: MIT
BuildArch: noarch
%description
x
%install
mkdir -p %{buildroot}/usr/share/x/deep/er %{buildroot}/etc
seq 60000 > %{buildroot}/usr/share/x/numbers
echo one > %{buildroot}/usr/share/x/first
ln %{buildroot}/usr/share/x/first %{buildroot}/usr/share/x/second
ln -s ../first %{buildroot}/usr/share/x/deep/link
: > %{buildroot}/usr/share/x/empty
echo conf > %{buildroot}/etc/x.conf
touch -d '2001-02-03 04:05:06' %{buildroot}/usr/share/x/numbers
%files
%dir %attr(0750,mail,games) /usr/share/x
%attr(4711,root,mail) /usr/share/x/numbers
/usr/share/x/first
/usr/share/x/second
/usr/share/x/empty
%attr(0700,daemon,bin) /usr/share/x/deep
%config /etc/x.conf
%ghost /etc/ghost
";

/// Makes `x.rpm` with a payload of that kind.
fn build(scratch: &Scratch, payload: &str) {
    fs::write(scratch.path("x.spec"), SPEC).unwrap();
    scratch.shell(&format!(
        "rm -rf top x.rpm; rpmbuild -bb --define \"_topdir $PWD/top\" --define '_binary_payload {payload}' x.spec > log 2>&1 || cat log >&2
         find top/RPMS -name '*.rpm' -exec mv {{}} x.rpm ';'"
    ));
}

/// > What is mounted of an RPM package is what `rpm2cpio` and `cpio -i` make of it, with the owners that it names.
#[test]
fn packages_of_rpm_show_their_files() {
    if !can_mount() || !have("rpmbuild") || !have("rpm2cpio") || !have("cpio") {
        return println!("left out: no mounts or no rpm here");
    }
    for payload in ["w9.gzdio", "w6.xzdio", "w6.lzdio", "w3.zstdio", "w9.bzdio", "w.ufdio"] {
        let scratch = Scratch::new();
        build(&scratch, payload);
        scratch.shell(
            "mkdir theirs; rpm2cpio x.rpm > x.cpio; cd theirs; cpio -idm --quiet --no-preserve-owner < ../x.cpio",
        );
        let theirs = (sums(&scratch, &scratch.path("theirs")), attributes(&scratch, &scratch.path("theirs")));
        // The first mount decodes it, and the next one has an index.
        for option in ["--index-minimum-file-count=0", "--no-recreate-index"] {
            let mounted = Mounted::new(&scratch, scratch.path("x.rpm"), &["--index-minimum-file-count=0", option]);
            let ours = (sums(&scratch, &mounted.path("")), attributes(&scratch, &mounted.path("")));
            assert_eq!(ours, theirs, "{payload}");
            assert_eq!(fs::metadata(mounted.path("usr/share/x")).unwrap().mode() & 0o7777, 0o750);
            mounted.unmount();
        }
        let shown = told(&scratch, "stat", "x.rpm", &["usr/share/x/deep"]).ok().text();
        assert!(shown.contains("daemon") && shown.contains("bin"), "{shown}");
    }
}

/// Entries that have numbers in place of names, of a package with a file of more than 4 GiB, which rpmbuild has made.
#[test]
fn packages_with_large_files_show_them() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    fs::copy(small("large.rpm"), scratch.path("large.rpm")).unwrap();
    let mounted = Mounted::new(&scratch, scratch.path("large.rpm"), &[]);
    let at = |name: &str| mounted.path(format!("usr/share/x/{name}"));
    let large = fs::File::open(at("large")).unwrap();
    assert_eq!(large.metadata().unwrap().len(), 4_300_000_004);
    let mut end = [7; 8];
    large.read_exact_at(&mut end, 4_300_000_004 - 8).unwrap();
    assert_eq!(&end, b"\0\0\0\0end\n");
    drop(large);
    assert_eq!(
        (fs::read(at("first")).unwrap(), fs::read(at("deep/link")).unwrap()),
        (b"one\n".into(), b"one\n".into())
    );
    assert_eq!(fs::metadata(at("first")).unwrap().ino(), fs::metadata(at("second")).unwrap().ino());
    assert!(fs::read_to_string(at("zlast")).unwrap().ends_with("\n1000\n"));
    mounted.unmount();
}

/// In a tar, compressed or not, and what is cut.
#[test]
fn packages_in_archives_and_cut_ones() {
    if !can_mount() || !have("rpmbuild") {
        return println!("left out: no mounts or no rpm here");
    }
    let scratch = Scratch::new();
    build(&scratch, "w9.gzdio");
    scratch.shell("tar -cf outer.tar x.rpm; gzip -k outer.tar");
    let alone = Mounted::new(&scratch, scratch.path("x.rpm"), &[]);
    let expected = sums(&scratch, &alone.path(""));
    alone.unmount();
    for outer in ["outer.tar", "outer.tar.gz"] {
        let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r", "--recursive-extensions=rpm"]);
        assert_eq!(sums(&scratch, &mounted.path("x.rpm")), expected, "{outer}");
        mounted.unmount();
    }
    let bytes = fs::read(scratch.path("x.rpm")).unwrap();
    for part in [1000, bytes.len() / 2, bytes.len() - 1] {
        fs::write(scratch.path("cut.rpm"), &bytes[..part]).unwrap();
        let ran = told(&scratch, "check", "cut.rpm", &[]);
        assert!(ran.code != 0, "{part}: {}", ran.text());
        assert!(ran.text().contains("cut short") || ran.err.contains("cut short"), "{part}: {}{}", ran.text(), ran.err);
    }
}

/// > Of a Debian package, `control` is what `dpkg-deb -e` makes of it, and `data` what `dpkg-deb -x` does.
#[test]
fn packages_of_debian_show_control_and_data() {
    if !can_mount() || !have("dpkg-deb") {
        return println!("left out: no mounts or no dpkg-deb here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p p/DEBIAN p/usr/bin p/etc; seq 1 60000 > p/usr/bin/tool; ln p/usr/bin/tool p/usr/bin/same; ln -s tool p/usr/bin/link
         echo a=b > p/etc/tool.conf; echo /etc/tool.conf > p/DEBIAN/conffiles
         printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' > p/DEBIAN/control",
    );
    let made = "dpkg-deb --build --root-owner-group";
    for compression in ["none", "gzip", "xz", "zstd"] {
        scratch.shell(&format!(
            "rm -rf p.deb files control; {made} -Z{compression} p p.deb > log || {made} p p.deb > log
             dpkg-deb -x p.deb files; dpkg-deb -e p.deb control"
        ));
        for option in ["--index-minimum-file-count=0", "--no-recreate-index"] {
            let mounted = Mounted::new(&scratch, scratch.path("p.deb"), &["--index-minimum-file-count=0", option]);
            assert_eq!(fs::read(mounted.path("debian-binary")).unwrap(), b"2.0\n");
            assert_twins(&mounted.path("control"), &scratch.path("control"), COMPARE);
            assert_twins(&mounted.path("data"), &scratch.path("files"), COMPARE);
            mounted.unmount();
        }
    }
    // Members of the kinds that dpkg-deb writes no more, and a signature behind them.
    scratch.shell(
        "tar -cf control.tar -C control .; tar -cf data.tar -C files .; echo 2.0 > debian-binary; echo signed > _gpgorigin
         bzip2 -k data.tar; gzip -k control.tar; xz --format=lzma -k data.tar
         ar rcD old.deb debian-binary control.tar.gz data.tar.bz2 _gpgorigin
         ar rcD lzma.deb debian-binary control.tar data.tar.lzma",
    );
    for (name, members) in [("old.deb", 4), ("lzma.deb", 3)] {
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(fs::read_dir(&mounted.at).unwrap().count(), members, "{name}");
        assert_twins(&mounted.path("control"), &scratch.path("control"), COMPARE);
        assert_twins(&mounted.path("data"), &scratch.path("files"), COMPARE);
        if members == 4 {
            assert_eq!(fs::read(mounted.path("_gpgorigin")).unwrap(), b"signed\n");
        }
        mounted.unmount();
    }
    // In a tar.
    scratch.shell("tar -cf packages.tar p.deb; gzip -k packages.tar");
    for outer in ["packages.tar", "packages.tar.gz"] {
        let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r", "--recursive-extensions=deb"]);
        assert_twins(&mounted.path("p.deb/data"), &scratch.path("files"), COMPARE);
        mounted.unmount();
    }
    scratch
        .shell("head -c 300 p.deb > cut.deb; printf '!<arch>\n' > none.deb; ar rcD none.deb debian-binary control.tar");
    let cut = told(&scratch, "ls", "cut.deb", &[]);
    assert!(cut.code != 0 && cut.err.contains("cut"), "{}", cut.err);
    assert!(cut.text().contains("debian-binary"), "{}", cut.text());
    let none = told(&scratch, "ls", "none.deb", &[]);
    assert!(none.code == 5 && none.err.contains("before its data, or has none"), "{}", none.err);
    assert!(none.text().contains("control"), "{}", none.text());
    scratch.shell(
        "for i in $(seq 70); do echo $i > m$i; done; ar rcD many.deb debian-binary control.tar $(seq -f m%g 70) data.tar",
    );
    let many = told(&scratch, "ls", "many.deb", &[]);
    assert!(many.code == 5 && many.err.contains("too many members before its data"), "{}", many.err);
}

/// What is damaged of `control.tar` is no more served than what is damaged of `data.tar`.
#[test]
fn damage_in_the_control_of_a_package_is_an_error() {
    if !have("ar") || !have("python3") {
        return println!("left out: no ar, or no python3");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir c d; printf 'rm -f /var/lib/pkg/a' > c/postinst; seq 9 > c/md5sums; seq 99 > d/file; echo 2.0 > debian-binary
         tar -cf control.tar --sort=name -C c md5sums postinst; tar -czf data.tar.gz -C d file
         python3 -c \"import gzip; open('control.tar.gz', 'wb').write(gzip.compress(open('control.tar', 'rb').read(), 0).replace(b'/var', b'/Xar'))\"
         ar rcD gz.deb debian-binary control.tar.gz data.tar.gz
         head -c 1540 control.tar > part; mv part control.tar; ar rcD cut.deb debian-binary control.tar data.tar.gz",
    );
    for package in ["gz.deb", "cut.deb"] {
        let wrong = told(&scratch, "cat", package, &["control/postinst"]);
        // Of one that is cut, what is left.
        let right: &[u8] = if package == "cut.deb" { b"rm -" } else { b"" };
        assert!(wrong.code != 0 && right.starts_with(&wrong.out), "{package}: {}", wrong.text());
        let right = told(&scratch, "cat", package, &["data/file"]);
        assert_eq!(right.text().lines().count(), 99, "{package}: {}", right.err);
        let checked = told(&scratch, "check", package, &[]);
        assert_eq!(checked.code, 5, "{package}: {}", checked.err);
        assert!(package == "cut.deb" || !checked.err.contains("none of its"), "{}", checked.err);
    }
}

/// What other systems call packages is read by what it is.
#[test]
fn packages_that_are_archives_of_other_kinds_are_known() {
    if !have("tar") || !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    // Of Alpine: three tars, each compressed by itself, and the first two without an end.
    scratch.shell(
        "mkdir f; echo file > f/file; echo signature > .SIGN.RSA.x; echo name > .PKGINFO
         tar -cf sign .SIGN.RSA.x; tar -cf info .PKGINFO; head -c 1024 sign | gzip -n > x.apk; head -c 1024 info | gzip -n >> x.apk
         tar -cf - -C f file | gzip -n >> x.apk
         tar -cf - .PKGINFO -C f file | zstd -q > x.pkg.tar.zst; tar -cf x.gem .PKGINFO
         for name in x.whl x.nupkg; do zip -q $name .PKGINFO; done; tar -czf x.crate .PKGINFO",
    );
    for (name, files) in
        [("x.apk", 3), ("x.pkg.tar.zst", 2), ("x.gem", 1), ("x.whl", 1), ("x.nupkg", 1), ("x.crate", 1)]
    {
        let listed = told(&scratch, "find", name, &[]).ok().text();
        let found =
            listed.lines().filter(|line| line.contains("PKGINFO") || line.contains("file") || line.contains("SIGN"));
        assert_eq!(found.count(), files, "{name}: {listed}");
    }
}
