//! Container images: what a mount shows, beside what is unpacked layer by layer, and what umoci unpacks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{
    Compare, Mounted, Scratch, assert_twins, can_mount, have, is_mounted, is_root, run, survey, tarnfs, wait_until,
};
use crate::trees::told;

const COMPARE: Compare = Compare { skip_folder_times: true, holes: false, whole_seconds: false };

/// The script that makes images, and unpacks them.
const MAKE: &str = concat!("python3 ", env!("CARGO_MANIFEST_DIR"), "/../../tests/support/images.py .");

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn can_make_images() -> bool {
    can_mount() && is_root() && have("python3") && have("zstd")
}

/// > An archive of `docker save`, an OCI layout or a tar of one shows, in a mount and over HTTP, what comes
/// > of unpacking its layers one after the other: a higher layer's file takes the place of what has its path,
/// > folders are merged, `.wh.NAME` removes `NAME` of lower layers, and `.wh..wh..opq` all that lower layers
/// > have in its folder. Names that begin with `.wh.` do not show.
///
/// > A folder has the attributes of the highest layer that has an entry for it, also where a layer above that has
/// > removed all that was in it. One that no layer has an entry for belongs to root. The root itself is of mode 0755
/// > and belongs to root, whatever layers say.
#[test]
fn a_container_would_see_the_same() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    scratch.shell("gzip -k oci.tar; zstd -q docker.tar");
    for image in ["docker.tar", "oci.tar", "oci", "oci.tar.gz", "docker.tar.zst"] {
        for options in [&[][..], &["-c"], &["--index-minimum-file-count=0"], &["--index-minimum-file-count=0"], &["-r"]]
        {
            let mounted = Mounted::new(&scratch, scratch.path(image), options);
            assert_twins(&mounted.at, &scratch.path("rootfs"), COMPARE);
            assert!(fs::symlink_metadata(mounted.path(".wh.swap")).is_err(), "{image}");
            assert!(fs::symlink_metadata(mounted.path("data/.wh.keep")).is_err(), "{image}");
            assert_eq!(fs::metadata(&mounted.at).unwrap().permissions().mode() & 0o7777, 0o755);
            // Each layer as it is.
            let layers = names(&mounted.path(".layers"));
            assert_eq!(layers.len(), 4, "{layers:?}");
            assert_eq!(fs::read_to_string(mounted.path("swap")).unwrap(), "a file again\n");
            let of_layers = |path: &str| {
                let has =
                    |layer: &&String| fs::symlink_metadata(mounted.path(".layers").join(layer).join(path)).is_ok();
                layers.iter().filter(has).count()
            };
            assert_eq!((of_layers(".wh.swap"), of_layers("etc"), of_layers("data/keep")), (1, 2, 1), "{image}");
            mounted.unmount();
        }
    }
    // Nothing comes into a layout that others look at.
    assert_eq!(names(&scratch.path("oci")), ["blobs", "index.json", "oci-layout"]);
    assert_eq!(names(&scratch.path("oci/blobs/sha256")).len(), 6);
}

/// > Without a mount point, the folder is named after the first archive.
#[test]
fn a_layout_needs_no_mount_point() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    let before = names(&scratch.path(""));
    let nothing = std::process::Stdio::null;
    let mut command = tarnfs(&scratch);
    command.current_dir(scratch.path("")).arg("oci").stdout(nothing()).stderr(nothing());
    assert!(command.status().unwrap().success());
    let made: Vec<_> = names(&scratch.path("")).into_iter().filter(|name| !before.contains(name)).collect();
    let at = scratch.path(made.iter().find(|name| is_mounted(&scratch.path(name))).unwrap());
    assert_twins(&at, &scratch.path("rootfs"), COMPARE);
    assert!(run(&scratch, ["-u".as_ref(), at.as_os_str()]).code == 0);
    wait_until("it is gone", || !is_mounted(&at));
}

#[test]
fn each_tag_has_a_folder() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    let mounted = Mounted::new(&scratch, scratch.path("two.tar"), &[]);
    assert_eq!(names(&mounted.at), ["demo:latest", "host_demo:1", "small:latest"]);
    for (name, twin) in [("demo:latest", "rootfs"), ("host_demo:1", "rootfs"), ("small:latest", "rootfs-1")] {
        assert_twins(&mounted.path(name), &scratch.path(twin), COMPARE);
    }
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("two.tar"), &["--prefix", "small:latest"]);
    assert_twins(&mounted.at, &scratch.path("rootfs-1"), COMPARE);
    mounted.unmount();
}

#[test]
fn a_platform_can_be_chosen() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    for (options, twin) in [
        (&["--platform", "linux/riscv64"][..], "rootfs-1"),
        (&["--platform", "linux/arm"], "rootfs"),
        (&["--platform", "linux/arm/v6"], "rootfs"),
        (&[], "rootfs-1"),
    ] {
        let mounted = Mounted::new(&scratch, scratch.path("platforms.tar"), options);
        assert_twins(&mounted.at, &scratch.path(twin), COMPARE);
        mounted.unmount();
    }
    for platform in ["linux/arm/v7", "windows/amd64"] {
        let failed = Mounted::any(&scratch, scratch.path("platforms.tar"), &["--platform", platform]);
        assert!(failed.ran.code != 0 && failed.ran.err.contains("linux/riscv64, linux/arm/v6"), "{}", failed.ran.err);
    }
    let failed = Mounted::any(&scratch, scratch.path("platforms.tar"), &["--platform", "arm"]);
    assert!(failed.ran.code != 0 && failed.ran.err.contains("OS/ARCHITECTURE"), "{}", failed.ran.err);
}

#[test]
fn what_is_stored_can_be_seen() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    scratch.shell("mkdir raw; tar -xf oci.tar -C raw");
    for options in [&["--no-images"][..], &["--no-images", "-c"]] {
        let mounted = Mounted::new(&scratch, scratch.path("oci.tar"), options);
        assert_twins(&mounted.at, &scratch.path("raw"), COMPARE);
        mounted.unmount();
    }
    let mounted = Mounted::new(&scratch, scratch.path("oci"), &["--no-images"]);
    assert_eq!(names(&mounted.at), ["blobs", "index.json", "oci-layout"]);
    mounted.unmount();
}

/// > Whatever is not certainly an archive of images is shown as the archive that it is.
#[test]
fn what_only_looks_like_an_image_is_a_tar() {
    if !can_mount() || !have("tar") {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        r#"mkdir a b c d; echo '{"name": "an app"}' > a/manifest.json; echo x > a/x
        echo '[{"Config": "config.json", "Layers": ["x.tar"], "RepoTags": null}]' > b/manifest.json
        echo '{"rootfs": {"type": "layers", "diff_ids": []}}' > b/config.json; tar -cf b/x.tar a
        echo '{"imageLayoutVersion": "1.0.0"}' > c/oci-layout; echo '{"schemaVersion": 2, "manifests": []}' > c/index.json
        echo '[{"Config": "../a/manifest.json", "Layers": []}]' > d/manifest.json
        for i in a b c d; do tar -cf $i.tar -C $i .; done"#,
    );
    for name in ["a", "b", "c", "d"] {
        let mounted = Mounted::new(&scratch, scratch.path(format!("{name}.tar")), &[]);
        assert_twins(&mounted.at, &scratch.path(name), Compare { whole_seconds: true, ..COMPARE });
        assert!(!mounted.ran.err.contains("images"), "{}", mounted.ran.err);
        mounted.unmount();
    }
}

/// > An image of which a layer is missing or damaged is not shown, with a line that says so. If there is no other one,
/// > the archive is shown as it is stored. `--force` shows an image with damaged layers: files that these have lost may
/// > show as lower layers have them.
#[test]
fn what_is_broken_is_told_and_shown_as_it_is() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    // A layer that is not there; and a manifest that is not the one that was meant.
    scratch.shell(
        "tar -tf docker.tar | grep layer.tar > layers; cp docker.tar less.tar; tar --delete -f less.tar $(head -n 1 layers)
         mkdir other; tar -xf oci.tar -C other; cd other
         for f in $(grep -l config.v1 -r blobs); do echo ' ' >> $f; done; tar -cf ../other.tar oci-layout index.json blobs",
    );
    // A layer that is cut in its half, in an archive that is whole.
    scratch.shell(
        "mkdir cut; tar -xf docker.tar -C cut; cd cut; f=$(ls -S $(tar -tf ../docker.tar | grep layer.tar) | head -n 1)
         truncate -s $(($(stat -c %s $f) / 2)) $f; tar -cf ../cut.tar *",
    );
    for (name, word) in [("less.tar", "is not in the archive"), ("other.tar", "digest"), ("cut.tar", "is damaged")] {
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert!(mounted.ran.err.contains(word), "{name}: {}", mounted.ran.err);
        assert!(names(&mounted.at).iter().any(|name| name.as_bytes().ends_with(b".json")), "{name}");
        mounted.unmount();
    }
    let mounted = Mounted::any(&scratch, scratch.path("cut.tar"), &["--force"]);
    assert!(mounted.ran.err.contains("may show files of lower layers"), "{}", mounted.ran.err);
    assert!(names(&mounted.at).contains(&"etc".to_owned()));
    mounted.unmount();
    let checked = told(&scratch, "check", "less.tar", &[]);
    assert_eq!(checked.code, 0, "{}", checked.err);
}

/// > `tarnfs check` compares the layers of container images with their digests.
#[test]
fn layers_are_compared_with_their_digests() {
    if !can_make_images() {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    // A byte of a file in a layer that has no checksum, and one that is in its place.
    scratch.shell(
        "mkdir wrong; tar -xf docker.tar -C wrong; cd wrong; f=$(ls -S $(tar -tf ../docker.tar | grep layer.tar) | head -n 1)
         printf X | dd of=$f bs=1 seek=1025 conv=notrunc status=none; tar -cf ../wrong.tar *; cd ..
         mkdir swapped; tar -xf oci.tar -C swapped; cd swapped/blobs/sha256; for f in $(ls -S | head -n 2); do echo $f; done > ../two
         set -- $(cat ../two); cp $1 $2; rm ../two; cd ../..; tar -cf ../swapped.tar oci-layout index.json blobs; cd ..
         mkdir cut; tar -xf oci.tar -C cut; cd cut; truncate -s -1000 blobs/sha256/$(ls -S blobs/sha256 | head -n 1)
         tar -cf ../cut.tar oci-layout index.json blobs; cd ..
         mkdir packed; tar -xf docker.tar -C packed; cd packed; f=$(ls -S $(tar -tf ../docker.tar | grep layer.tar) | head -n 1)
         zstd -q $f -o z; mv z $f; tar -cf ../packed.tar *; truncate -s -1000 $f; tar -cf ../unpacked.tar *",
    );
    for name in ["docker.tar", "oci.tar", "packed.tar"] {
        let checked = told(&scratch, "check", name, &[]);
        assert_eq!(checked.code, 0, "{name}: {}{}", checked.text(), checked.err);
    }
    // A hole without end is not hashed.
    scratch.shell(
        "mkdir hole; tar -xf docker.tar -C hole; cd hole; f=$(ls -S $(tar -tf ../docker.tar | grep layer.tar) | head -n 1)
         truncate -s 6T $f; tar -S -cf ../hole.tar *",
    );
    let checked = told(&scratch, "check", "hole.tar", &[]);
    assert!(checked.err.contains("is not compared with its digest"), "{}{}", checked.text(), checked.err);
    for name in ["wrong.tar", "swapped.tar", "cut.tar", "unpacked.tar"] {
        let checked = told(&scratch, "check", name, &[]);
        assert!(checked.code == 5 && checked.text().contains("does not have the digest sha256:"), "{}", checked.text());
    }
}

/// > Layers and documents of a layout that is a folder are files in it: symbolic links are not followed.
#[test]
fn a_layout_does_not_lead_elsewhere_and_does_not_wait() {
    if !can_make_images() || !have("mkfifo") {
        return println!("left out: no mounts, no python3 or no zstd here");
    }
    let scratch = Scratch::new();
    scratch.shell(MAKE);
    scratch.shell(
        "f=$(ls -S oci/blobs/sha256/* | head -n 1); mv $f secret; ln -s $PWD/secret $f
         mkdir waits; mkfifo waits/manifest.json waits/oci-layout waits/index.json; echo x > waits/x",
    );
    let mounted = Mounted::new(&scratch, scratch.path("oci"), &[]);
    assert_eq!(names(&mounted.at), ["blobs", "index.json", "oci-layout"]);
    assert!(mounted.ran.err.contains("is not in the archive"), "{}", mounted.ran.err);
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("waits"), &[]);
    assert_eq!(fs::read_to_string(mounted.path("x")).unwrap(), "x\n");
    mounted.unmount();
}

#[test]
fn what_umoci_has_made_is_as_umoci_unpacks_it() {
    if !can_mount() || !is_root() || !have("umoci") {
        return println!("left out: no mounts or no umoci here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umoci init --layout img; umoci new --image img:v1; mkdir -p a/etc a/usr/bin a/tmp a/data/sub a/opq/x
         chmod 1777 a/tmp; echo one > a/etc/conf; echo old > a/data/sub/f; echo keep > a/data/keep; echo x > a/opq/x/y
         echo z > a/opq/z; ln -s usr/bin a/bin; echo tool > a/usr/bin/tool; ln a/usr/bin/tool a/usr/bin/tool2
         mknod a/dev0 c 1 3; seq 100000 > a/data/numbers; umoci insert --image img:v1 a /
         umoci unpack --image img:v1 b; cd b/rootfs; rm data/keep; rm -r data/sub; echo file > data/sub
         rm -r opq; mkdir opq; echo new > opq/n; chmod 700 etc; ln usr/bin/tool usr/bin/tool3; cd ../..
         umoci repack --refresh-bundle --image img:v2 b; cd b/rootfs; rm data/sub; mkdir data/sub; echo again > data/sub/f
         rm -r opq etc; cd ../..; umoci repack --refresh-bundle --image img:v3 b
         for v in v1 v2 v3; do umoci unpack --image img:$v $v; done",
    );
    let mounted = Mounted::new(&scratch, scratch.path("img"), &[]);
    assert_eq!(names(&mounted.at), ["v1", "v2", "v3"]);
    for name in ["v1", "v2", "v3"] {
        assert_twins(&mounted.path(name), &scratch.path(name).join("rootfs"), COMPARE);
    }
    let whole = survey(&mounted.path("v3"), COMPARE);
    mounted.unmount();
    if !have("skopeo") {
        return println!("left out: no skopeo here");
    }
    scratch.shell(
        "skopeo copy -q --insecure-policy oci:img:v3 docker-archive:save.tar:demo:v3
         skopeo copy -q --insecure-policy oci:img:v3 oci-archive:oci.tar:demo:v3",
    );
    for name in ["save.tar", "oci.tar"] {
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(survey(&mounted.at, COMPARE), whole, "{name}");
        mounted.unmount();
    }
}
