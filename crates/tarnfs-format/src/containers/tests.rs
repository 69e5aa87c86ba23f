use super::*;

/// Documents by their paths; of all else it has what `has` says, which is counted.
struct Files(HashMap<String, String>, std::cell::Cell<usize>);

impl Members for Files {
    fn read(&self, path: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(path).filter(|text| text.len() as u64 <= most).map(|text| text.clone().into_bytes()))
    }

    fn has(&self, path: &str) -> io::Result<bool> {
        self.1.set(self.1.get() + 1);
        Ok(self.0.contains_key(path) || path.as_bytes().ends_with(b".tar"))
    }
}

fn files(list: &[(&str, &str)]) -> Files {
    made(list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
}

fn made(files: HashMap<String, String>) -> Files {
    Files(files, std::cell::Cell::new(0))
}

fn digest_of(text: &str) -> String {
    format!("sha256:{}", hex(&Sha256::digest(text)))
}

const ID: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn config(architecture: &str, layers: usize) -> String {
    let ids = vec![format!("\"{ID}\""); layers].join(",");
    format!(r#"{{"os":"linux","architecture":"{architecture}","rootfs":{{"type":"layers","diff_ids":[{ids}]}}}}"#)
}

#[test]
fn platforms_are_named_in_many_ways() {
    let platform = |text: &str| text.parse::<Platform>().unwrap();
    assert_eq!(platform("linux/x86_64"), platform("Linux/AMD64"));
    assert_eq!(platform("linux/aarch64").to_string(), "linux/arm64");
    for (wanted, image, takes) in [
        ("linux/arm64", "linux/arm64/v8", true),
        ("linux/arm64/v8", "linux/arm64", true),
        ("linux/arm", "linux/arm/v6", true),
        ("linux/arm/v6", "linux/arm", false),
        ("linux/arm/v7", "linux/arm", true),
        ("linux/amd64", "windows/amd64", false),
    ] {
        assert_eq!(platform(wanted).takes(&platform(image)), takes, "{wanted} {image}");
    }
    for text in ["", "linux", "linux/", "/arm", "a/b/c/d"] {
        assert!(text.parse::<Platform>().is_err(), "{text}");
    }
}

#[test]
fn digests_lead_to_blobs_and_nowhere_else() {
    assert_eq!(blob(ID).as_deref(), Some(&*format!("blobs/{}", ID.replace(':', "/"))));
    let long = "a".repeat(64);
    for digest in ["", "sha256:", "sha256:ab", &format!("../x:{long}"), &format!("sha256:../{long}"), &long] {
        assert_eq!(blob(digest), None, "{digest}");
    }
    assert!(!is_inside("../a") && !is_inside("/a") && !is_inside("a//b") && is_inside("a/b.tar"));
}

#[test]
fn manifests_of_docker_must_fit_their_configuration() {
    let manifest = |layers: &str| format!(r#"[{{"Config":"c.json","RepoTags":["a:1"],"Layers":[{layers}]}}]"#);
    let found = |layers: &str, config: &str| {
        let files = files(&[("manifest.json", &manifest(layers)), ("c.json", config)]);
        images(&files).unwrap().map(|found| (found.images.len(), found.notes.len()))
    };
    assert_eq!(found(r#""x.tar""#, &config("amd64", 1)), Some((1, 0)));
    // Its layer is not there.
    assert_eq!(found(r#""x""#, &config("amd64", 1)), Some((0, 1)));
    for (layers, config) in [
        (r#""x.tar""#, config("amd64", 2)),
        (r#""../x.tar""#, config("amd64", 1)),
        (r#""x.tar""#, "{}".to_owned()),
        (r#""x.tar""#, String::new()),
    ] {
        assert_eq!(found(layers, &config), None, "{layers} {config}");
    }
    for text in ["{}", "[]", "[{}]", "[[[[[", r#"[{"Config": 1}]"#, "\u{1}"] {
        assert_eq!(images(&files(&[("manifest.json", text)])).unwrap(), None, "{text}");
    }
}

#[test]
fn what_an_index_leads_to_is_compared_with_its_digest() {
    let config = config("riscv64", 0);
    let manifest = format!(r#"{{"schemaVersion":2,"config":{{"digest":"{}"}},"layers":[]}}"#, digest_of(&config));
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{{"digest":"{}"}}]}}"#, digest_of(&manifest));
    let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
    let place = |text: &str| blob(&digest_of(text)).unwrap();
    let all = [
        ("oci-layout".to_owned(), layout.to_owned()),
        ("index.json".to_owned(), index),
        (place(&manifest), manifest.clone()),
        (place(&config), config.clone()),
    ];
    let found = images(&made(all.clone().into())).unwrap().unwrap();
    assert_eq!(found.images.len(), 1);
    assert_eq!((found.images[0].platform.to_string(), &found.images[0].layers), ("linux/riscv64".into(), &vec![]));
    let mut other = HashMap::from(all);
    other.insert(place(&config), format!("{config} "));
    let error = images(&made(other)).unwrap_err();
    assert!(error.to_string().contains("digest"), "{error}");
}

#[test]
fn an_index_that_leads_to_itself_ends() {
    // Its digest is of an algorithm that nobody compares.
    let digest = format!("x:{}", "0".repeat(64));
    let list = vec![format!(r#"{{"digest":"{digest}","annotations":null}}"#); 5000].join(",");
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{list}]}}"#);
    let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
    let files = files(&[("oci-layout", layout), ("index.json", &index), (&blob(&digest).unwrap(), &index)]);
    assert_eq!(images(&files).unwrap().unwrap().images, []);
}

/// An index that gives a long name to one of many manifests: each of these has the same one, not one of its own.
#[test]
fn names_of_an_index_take_memory_once() {
    let config = config("riscv64", 0);
    let manifest = |number: usize| {
        let digest = digest_of(&config);
        format!(r#"{{"schemaVersion":2,"config":{{"digest":"{digest}"}},"layers":[],"number":{number}}}"#)
    };
    let manifests: Vec<String> = (0..100).map(manifest).collect();
    let list = |digests: Vec<String>| format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, digests.join(","));
    let inner = list(manifests.iter().map(|text| format!(r#"{{"digest":"{}"}}"#, digest_of(text))).collect());
    let name = "é".repeat(1_000_000);
    let key = "io.containerd.image.name";
    let annotated = format!(r#"{{"digest":"{}","annotations":{{"{key}":"{name}"}}}}"#, digest_of(&inner));
    let place = |text: &String| (blob(&digest_of(text)).unwrap(), text.clone());
    let mut all: HashMap<String, String> = manifests.iter().chain([&inner, &config]).map(place).collect();
    all.insert("oci-layout".to_owned(), r#"{"imageLayoutVersion":"1.0.0"}"#.to_owned());
    all.insert("index.json".to_owned(), list(vec![annotated]));
    let found = images(&made(all)).unwrap().unwrap().images;
    assert_eq!(found.len(), 100);
    assert_eq!(*found[0].names, ["é".repeat(LONGEST_NAME / 2)]);
    assert!(found.iter().all(|image| Arc::ptr_eq(&image.names, &found[0].names)));
}

/// One configuration with many layers, named by many images.
#[test]
fn layers_of_all_images_are_bounded() {
    let layers = vec![r#""x.tar""#; MOST_LAYERS].join(",");
    let saved = vec![format!(r#"{{"Config":"c.json","Layers":[{layers}]}}"#); 80].join(",");
    let config = config("amd64", MOST_LAYERS);
    let found = images(&files(&[("manifest.json", &format!("[{saved}]")), ("c.json", &config)])).unwrap().unwrap();
    assert_eq!((found.images.len(), found.notes.len()), (MOST_LAYERS_OF_ALL / MOST_LAYERS, 1), "{:?}", found.notes);
}

/// What is at a path is looked for once, however many images have a layer there.
#[test]
fn layers_of_one_path_are_looked_for_once() {
    let layers = vec![r#""x.tar""#; 500].join(",");
    let saved = vec![format!(r#"{{"Config":"c.json","Layers":[{layers}]}}"#); 20].join(",");
    let files = files(&[("manifest.json", &format!("[{saved}]")), ("c.json", &config("amd64", 500))]);
    let found = images(&files).unwrap().unwrap().images;
    assert_eq!((found.len(), files.1.get()), (20, 1));
    let first = &found[0].layers[0].path;
    assert!(found[1..].iter().all(|image| Arc::ptr_eq(&image.layers[0].path, first)));
}

/// Many images that all have as many names as one may have.
#[test]
fn names_of_all_images_are_bounded() {
    let names = (0..MOST_NAMES).map(|number| format!("\"a:{number}\"")).collect::<Vec<_>>().join(",");
    let saved = vec![format!(r#"{{"Config":"c.json","RepoTags":[{names}],"Layers":[]}}"#); 40].join(",");
    let files = files(&[("manifest.json", &format!("[{saved}]")), ("c.json", &config("amd64", 0))]);
    let found = images(&files).unwrap().unwrap();
    assert_eq!((found.images.len(), found.notes.len()), (MOST_NAMES_OF_ALL / MOST_NAMES, 1), "{:?}", found.notes);
}

/// A manifest says how long its layers are.
#[test]
fn lengths_of_layers_are_what_the_manifest_says() {
    let config = config("amd64", 3);
    let layer = |number: u32| format!("x:{}", number.to_string().repeat(64));
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}"}},"layers":[{{"digest":"{}","size":7}},{{"digest":"{}"}},
        {{"digest":"{}","size":-1}}]}}"#,
        digest_of(&config),
        layer(1),
        layer(2),
        layer(3)
    );
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{{"digest":"{}"}}]}}"#, digest_of(&manifest));
    let place = |text: &str| blob(&digest_of(text)).unwrap();
    let mut all = HashMap::from([
        ("oci-layout".to_owned(), r#"{"imageLayoutVersion":"1.0.0"}"#.to_owned()),
        ("index.json".to_owned(), index),
        (place(&manifest), manifest),
        (place(&config), config),
    ]);
    all.extend((1..=3).map(|number| (blob(&layer(number)).unwrap(), String::new())));
    let found = images(&made(all)).unwrap().unwrap().images;
    let sizes: Vec<_> = found[0].layers.iter().map(|layer| layer.size).collect();
    assert_eq!(sizes, [Some(7), None, None]);
}

#[test]
fn digests_are_compared_if_they_are_of_a_known_kind() {
    assert_eq!(is_digest_of(&digest_of("text"), b"text"), Some(true));
    assert_eq!(is_digest_of(&digest_of("text"), b"Text"), Some(false));
    let long = format!("sha512:{}", hex(&Sha512::digest("text")));
    assert_eq!((is_digest_of(&long, b"text"), is_digest_of(&long, b"")), (Some(true), Some(false)));
    assert_eq!((is_digest_of("blake3:00", b""), is_digest_of("", b"")), (None, None));
    let (right, wrong) = (digest_of("text"), digest_of("other"));
    let others = |digests: &[&str]| {
        let mut rest = &b"text"[..];
        let read = &mut |into: &mut [u8]| std::io::Read::read(&mut rest, into);
        other_digests(digests, read).unwrap().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(others(&[&right, &long, "blake3:00", ""]).is_empty() && others(&[]).is_empty());
    assert_eq!(others(&[&right, &wrong, "sha512:00"]), [wrong.as_str(), "sha512:00"]);
}

#[test]
fn archives_with_images_begin_with_their_names() {
    let begins = |path: &str| may_begin(&[&header(path, 0, 0).unwrap()[..], &[0; 1024]].concat());
    let digits = "0123456789abcdef".repeat(4);
    for path in ["manifest.json", "./oci-layout", "blobs/sha256/x", &format!("{digits}/layer.tar"), &digits] {
        assert!(begins(path), "{path}");
    }
    assert!(begins(&format!("{digits}.json")) && begins(&format!("sha256:{digits}")));
    for path in ["a", "x/manifest.json", "manifest.json.orig", &digits[1..], &format!("{digits}0"), "./"] {
        assert!(!begins(path), "{path}");
    }
    assert!(!may_begin(b"") && !may_begin(&[0; 4096]) && !may_begin(b"manifest.json"));
}

#[test]
fn platforms_are_chosen_for_each_image() {
    let image = |name: &str, platform: &str, group| Image {
        names: [name.to_owned()].into(),
        id: ID.to_owned(),
        platform: platform.parse().unwrap(),
        created: None,
        layers: Vec::new(),
        group,
    };
    let all = || vec![image("a", "linux/s390x", 0), image("b", "linux/arm/v6", 1), image("a", "linux/arm/v6", 0)];
    let names = |wanted: Option<&str>| -> Vec<String> {
        let wanted = wanted.map(|wanted| wanted.parse().unwrap());
        let chosen = chosen(all(), wanted.as_ref()).unwrap();
        chosen.iter().map(|image| format!("{} {}", image.names[0], image.platform)).collect()
    };
    assert_eq!(names(Some("linux/arm")), ["a linux/arm/v6", "b linux/arm/v6"]);
    assert_eq!(names(Some("linux/s390x")), ["a linux/s390x"]);
    assert_eq!(names(None), ["a linux/s390x", "b linux/arm/v6"]);
    let error = chosen(all(), Some(&"linux/386".parse().unwrap())).unwrap_err();
    assert_eq!(error, "there is no image for linux/386, but for linux/s390x, linux/arm/v6");
}
