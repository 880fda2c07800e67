//! Baselines and overlays of contract 001: all users of an agent share a baseline that none can
//! change, and each has files of their own over it. The baseline is compared on the host's disk;
//! routes and boxes must show the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::client::{ApiResponse, Client, file_part, text_part};
use crate::fixture::{Fixture, new_name, workspace_of};
use crate::workspace::{CommandResult, Workspace, snapshot};
use crate::zips;

/// An agent with two users, and an operator who uploads baselines.
struct Shared {
    server: Arc<Server>,
    ann: Workspace,
    bob: Workspace,
    operator: Client,
}

impl Shared {
    fn new(fixture: &Fixture) -> Self {
        let server = fixture.server();
        let agent = new_name("shared");
        let [ann, bob] = ["ann", "bob"].map(|user| workspace_of(&server, &new_name(user), &agent));
        let operator = Client::of(&server, &server.make_token(&["--role", "operator"]));
        Self { server, ann, bob, operator }
    }

    fn push_baseline(&self, zip: &[u8]) -> ApiResponse {
        let route = self.ann.skill_route("upload?scope=baseline");
        self.operator.upload(&route, b"b.zip", zip)
    }

    fn on_disk(&self) -> BTreeMap<PathBuf, (char, u32, Vec<u8>)> {
        snapshot(&self.server.data().join("baselines").join(&self.ann.agent))
    }
}

fn base() -> Vec<u8> {
    zips::of(&[
        ("s/SKILL.md", "---\nname: s\ndescription: shared\n---\n"),
        ("s/main.py", "print('base')\n"),
        ("s/lib/a.txt", "a\n"),
        ("s/lib/b.txt", "b\n"),
        ("s/data", "1\n2\n3\n"),
    ])
}

/// Files of the skill with their contents, read through the routes.
fn by_routes(workspace: &Workspace) -> BTreeMap<String, String> {
    let names = workspace.client.get(&workspace.skill_route("s/files")).success();
    let names: Vec<String> = serde_json::from_value(names).unwrap();
    assert!(names.is_sorted(), "{names:?}");
    let read = |name: String| {
        let path = crate::client::encode(&name);
        let found = workspace.client.get(&workspace.skill_route(&format!("s/content?path={path}"))).success();
        (name, found["content"].as_str().unwrap().to_owned())
    };
    names.into_iter().map(read).collect()
}

/// The same files, read by a program in a box.
fn by_box(workspace: &Workspace) -> BTreeMap<String, String> {
    let program = "import json, os\nfound = {}\nfor d, _, names in os.walk('.'):\n    for n in names:\n        \
        p = os.path.join(d, n)\n        found[p[2:]] = open(p).read()\nprint(json.dumps(found))";
    let result =
        CommandResult::read(&workspace.argv(&workspace.skill_route("s"), "python3", &["-c", program]).success());
    assert_eq!(result.code, 0, "{result:?}");
    serde_json::from_str(&result.stdout).unwrap()
}

fn view(workspace: &Workspace) -> BTreeMap<String, String> {
    let view = by_routes(workspace);
    assert_eq!(view, by_box(workspace), "the routes and a box see different files");
    view
}

pub(crate) fn upload_response_names_scope_and_path(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    let (ann, agent) = (&shared.ann, &shared.ann.agent);
    let response = ann.client.upload(&ann.skill_route("upload"), b"x.zip", &zips::skill("mine", "1")).success();
    assert_eq!(response, format!("Upload successful: skill 'mine' to 'skill/overlay/{}/{agent}/mine'", ann.user));
    let response = ann.client.upload(&ann.skill_route("upload?scope=overlay"), b"x.zip", &zips::skill("mine", "2"));
    response.success();
    let response = shared.push_baseline(&base()).success();
    assert_eq!(response, format!("Upload successful: skill 's' to 'skill/baseline/{agent}/s'"));
    // The scope can also be a part of the form.
    let parts = [text_part("scope", "baseline"), file_part(b"x.zip", &zips::skill("formed", "1"))];
    let response = shared.operator.send_form(&ann.skill_route("upload"), &[&parts[0], &parts[1]]).success();
    assert_eq!(response, format!("Upload successful: skill 'formed' to 'skill/baseline/{agent}/formed'"));
    let two = zips::of(&[("one/SKILL.md", ""), ("two/SKILL.md", "")]);
    let response = ann.client.upload(&ann.skill_route("upload"), b"x.zip", &two).success();
    let rest = response.as_str().unwrap().strip_prefix("Upload successful: ").unwrap().to_owned();
    let mut skills: Vec<&str> = rest.split(", ").collect();
    skills.sort_unstable();
    let of = |name: &str| format!("skill '{name}' to 'skill/overlay/{}/{agent}/{name}'", ann.user);
    assert_eq!(skills, [of("one"), of("two")]);
    for scope in ["Baseline", "OVERLAY", "other", "", "baseline%20"] {
        let route = ann.skill_route(&format!("upload?scope={scope}"));
        shared.operator.upload(&route, b"x.zip", &base()).expect_error(400);
    }
    // Only operators and owners may upload baselines.
    let before = shared.on_disk();
    for user in [ann, &shared.bob] {
        user.client
            .upload(&user.skill_route("upload?scope=baseline"), b"x.zip", &zips::skill("s", "no"))
            .expect_error(403);
    }
    assert_eq!(shared.on_disk(), before);
    let none = "Validation Error: No valid skill directory found in ZIP.";
    assert_eq!(shared.push_baseline(&zips::of(&[("x", "")])).expect_error(400), none);
    let missing = "Validation Error: Skill [bad] is missing required 'SKILL.md' at its root.";
    assert_eq!(shared.push_baseline(&zips::of(&[("s/SKILL.md", "x"), ("bad/x", "")])).expect_error(400), missing);
    assert_eq!(shared.on_disk(), before);
}

pub(crate) fn baseline_is_visible_below_overlay(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    shared.push_baseline(&base()).success();
    for user in [&shared.ann, &shared.bob] {
        let listed = user.client.get(&user.skill_route("list")).success();
        assert_eq!(listed[0]["name"], "s");
        assert_eq!(listed[0]["description"], "shared");
        assert_eq!(view(user).keys().collect::<Vec<_>>(), ["SKILL.md", "data", "lib/a.txt", "lib/b.txt", "main.py"]);
        // The routes of contract 000 show the same.
        assert_eq!(user.skills(), listed);
        assert_eq!(user.text("skills/s/lib/a.txt"), "a\n");
        let result = CommandResult::read(&user.argv(&user.skill_route("s"), "python3", &["main.py"]).success());
        assert_eq!(result.stdout, "base\n");
    }
    // Skills of the user's own.
    let ann = &shared.ann;
    ann.push(&zips::skill("mine", "1")).success();
    let names = |user: &Workspace| -> Vec<Value> {
        let listed = user.client.get(&user.skill_route("list")).success();
        listed.as_array().unwrap().iter().map(|skill| skill["name"].clone()).collect()
    };
    assert_eq!(names(ann), ["mine", "s"]);
    assert_eq!(names(&shared.bob), ["s"]);
    let own = zips::of(&[("s/SKILL.md", "---\nname: s\ndescription: of ann\n---\n"), ("s/main.py", "print('ann')\n")]);
    ann.push(&own).success();
    assert_eq!(ann.skills()[1]["description"], "of ann");
    assert_eq!(shared.bob.skills()[0]["description"], "shared");
    let seen = view(ann);
    assert_eq!(seen["main.py"], "print('ann')\n");
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["SKILL.md", "data", "lib/a.txt", "lib/b.txt", "main.py"]);
    assert_eq!(view(&shared.bob)["main.py"], "print('base')\n");
}

pub(crate) fn edits_do_not_change_baseline(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    shared.push_baseline(&base()).success();
    let (ann, bob) = (&shared.ann, &shared.bob);
    let (before, of_bob) = (shared.on_disk(), view(bob));
    let edit = |words: &str, text: &str| ann.client.put(&ann.skill_route(&format!("s/edit?{words}")), text).success();
    assert_eq!(edit("path=main.py", "print('ann')\n"), "Skill file updated successfully.");
    edit("path=data&start=2&end=2", "two");
    edit("path=new%2Ffile.txt", "new");
    ann.write("skills/s/lib/a.txt", "written").success();
    ann.edit("skills/s/lib/b.txt", "b", "edited", None).success();
    let expected = json!({
        "SKILL.md": "---\nname: s\ndescription: shared\n---\n", "main.py": "print('ann')\n", "data": "1\ntwo\n3\n",
        "new/file.txt": "new", "lib/a.txt": "written", "lib/b.txt": "edited\n",
    });
    assert_eq!(json!(view(ann)), expected);
    assert_eq!(view(bob), of_bob);
    assert_eq!(shared.on_disk(), before, "the baseline changed");
    let range = ann.client.get(&ann.skill_route("s/content?path=data&start=2&end=3")).success();
    assert_eq!(range, json!({ "content": ["two", "3"] }));
    ann.delete("skills/s/lib").success();
    assert_eq!(view(ann).keys().collect::<Vec<_>>(), ["SKILL.md", "data", "main.py", "new/file.txt"]);
    assert_eq!(view(bob), of_bob);
    assert_eq!(shared.on_disk(), before, "the baseline changed");
    // A deleted skill is hidden from this user only, and comes back when the user uploads it.
    assert_eq!(ann.delete_skill("s").success(), "Successfully deleted skill: s");
    assert_eq!(ann.skills(), json!([]));
    ann.client.get(&ann.skill_route("s/files")).expect_error(404);
    assert_eq!(bob.skill_names(), ["s"]);
    assert_eq!(shared.on_disk(), before, "the baseline changed");
    ann.push(&zips::skill("s", "back")).success();
    assert_eq!(view(ann)["main.py"], "back");
}

/// Changes made by a box affect only its user, and persist.
pub(crate) fn changes_of_box_do_not_change_baseline(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    shared.push_baseline(&base()).success();
    let (ann, bob) = (&shared.ann, &shared.bob);
    let (before, of_bob) = (shared.on_disk(), view(bob));
    let acts = [
        ("echo replaced > main.py", "main.py", Some("replaced\n")),
        ("echo 4 >> data", "data", Some("1\n2\n3\n4\n")),
        ("rm lib/a.txt", "lib/a.txt", None),
        ("mv lib/b.txt moved.txt", "moved.txt", Some("b\n")),
        ("test ! -e lib/b.txt", "lib/b.txt", None),
        ("chmod 777 main.py; truncate -s 3 main.py", "main.py", Some("rep")),
        ("ln data second; echo 5 >> second", "data", Some("1\n2\n3\n4\n5\n")),
        ("mv lib old; mkdir lib; echo new > lib/a.txt", "lib/a.txt", Some("new\n")),
        (
            "python3 -c 'import mmap; f = open(\"data\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[0] = 57; m.flush()'",
            "data",
            Some("9\n2\n3\n4\n5\n"),
        ),
        ("rm -rf moved.txt lib old second", "lib/a.txt", None),
    ];
    for (script, path, expected) in acts {
        let result = CommandResult::read(&ann.argv(&ann.skill_route("s"), "bash", &["-c", script]).success());
        assert_eq!(result.code, 0, "{script}: {result:?}");
        assert_eq!(view(ann).get(path).map(String::as_str), expected, "{script}");
        assert_eq!(shared.on_disk(), before, "{script} changed the baseline");
    }
    assert_eq!(view(ann).keys().collect::<Vec<_>>(), ["SKILL.md", "data", "main.py"]);
    assert_eq!(view(bob), of_bob, "another user is affected");
    let result = bob.run("rm -rf skills/s; mkdir -p skills/t; echo 'name: t' > skills/t/SKILL.md");
    assert_eq!(result.code, 0, "{result:?}");
    assert_eq!(bob.skill_names(), ["t"]);
    assert_eq!(view(ann).len(), 3);
    assert_eq!(shared.on_disk(), before, "the baseline changed");
}

/// A new version replaces only what the user has not changed.
pub(crate) fn new_version_keeps_changes_of_users(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    shared.push_baseline(&base()).success();
    let (ann, bob) = (&shared.ann, &shared.bob);
    view(bob);
    ann.write("skills/s/main.py", "print('ann')\n").success();
    ann.delete("skills/s/lib/a.txt").success();
    ann.run("echo boxed > skills/s/data");
    let next = zips::of(&[
        ("s/SKILL.md", "---\nname: s\ndescription: second\n---\n"),
        ("s/main.py", "print('second')\n"),
        ("s/lib/a.txt", "a2\n"),
        ("s/data", "second\n"),
        ("s/added", "added\n"),
    ]);
    shared.push_baseline(&next).success();
    let expected = json!({
        "SKILL.md": "---\nname: s\ndescription: second\n---\n", "main.py": "print('ann')\n", "data": "boxed\n",
        "added": "added\n",
    });
    assert_eq!(json!(view(ann)), expected, "lib/a.txt stays deleted, lib/b.txt is gone from the baseline");
    let expected = json!({
        "SKILL.md": "---\nname: s\ndescription: second\n---\n", "main.py": "print('second')\n", "lib/a.txt": "a2\n",
        "data": "second\n", "added": "added\n",
    });
    assert_eq!(json!(view(bob)), expected);
    // A later user gets the newest version.
    let carol = workspace_of(&shared.server, &new_name("carol"), &ann.agent);
    assert_eq!(view(&carol), view(bob));
}

/// Concurrent uploads of a baseline are serialized. Users see exactly one version at a time.
pub(crate) fn concurrent_uploads_publish_whole_versions(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    let version = |number: usize| {
        let names: Vec<String> = (0..20).map(|file| format!("s/{file}")).collect();
        let text = format!("version {number}");
        let mut files = vec![("s/SKILL.md", "name: s\n")];
        files.extend(names.iter().map(|name| (name.as_str(), text.as_str())));
        zips::of(&files)
    };
    shared.push_baseline(&version(0)).success();
    view(&shared.ann);
    std::thread::scope(|scope| {
        let uploads: Vec<_> = (1..=6)
            .map(|number| {
                let (shared, version) = (&shared, &version);
                scope.spawn(move || shared.push_baseline(&version(number)).success())
            })
            .collect();
        for user in [&shared.ann, &shared.bob] {
            scope.spawn(move || {
                for _ in 0..10 {
                    let mut seen = by_box(user);
                    seen.remove("SKILL.md");
                    assert_eq!(seen.len(), 20);
                    let versions: BTreeSet<String> = seen.into_values().collect();
                    assert_eq!(versions.len(), 1, "two versions at once");
                }
            });
        }
        for upload in uploads {
            upload.join().unwrap();
        }
    });
    assert_eq!(view(&shared.ann), view(&shared.bob));
}

/// While a box runs, existing skills do not change, new skills appear at once, and the list shows
/// pending updates.
pub(crate) fn update_waits_for_running_box(fixture: &Fixture) {
    let shared = Shared::new(fixture);
    let ann = &shared.ann;
    shared.push_baseline(&base()).success();
    let layers = |user: &Workspace| -> Vec<Value> {
        let listed = user.client.get(&format!("/v1/skills/{}/layers", user.agent)).success();
        let shown = |skill: &Value| json!([skill["folder"], skill["layer"], skill["update"]]);
        listed.as_array().unwrap().iter().map(shown).collect()
    };
    assert_eq!(layers(ann), [json!(["s", "baseline", null])]);
    let next = zips::of(&[("s/SKILL.md", "name: s\n"), ("s/data", "next\n"), ("new/SKILL.md", "name: new\n")]);
    // The command creates a file when it has started, and ends when another file appears.
    let line = "echo > files/there; while ! ls files/go >/dev/null 2>&1; do sleep 0.02; done; cat skills/s/data skills/new/SKILL.md";
    std::thread::scope(|scope| {
        let held = scope.spawn(|| ann.run(line));
        while !ann.listed("files").contains(&"files/there".to_owned()) {
            std::thread::yield_now();
        }
        shared.push_baseline(&next).success();
        assert_eq!(layers(ann), [json!(["new", "baseline", null]), json!(["s", "baseline", "waiting"])]);
        assert_eq!(by_routes(ann)["data"], "1\n2\n3\n", "the routes show what the box sees");
        assert_eq!(by_routes(&shared.bob)["data"], "next\n", "another user's box does not delay the update");
        assert_eq!(ann.run("cat skills/new/SKILL.md skills/s/data").stdout, "name: new\n1\n2\n3\n");
        ann.write("files/go", "").success();
        assert_eq!(held.join().unwrap().stdout, "1\n2\n3\nname: new\n");
    });
    assert_eq!(layers(ann), [json!(["new", "baseline", null]), json!(["s", "baseline", null])]);
    assert_eq!(view(ann)["data"], "next\n");
    ann.write("skills/s/data", "mine").success();
    ann.push(&zips::skill("own", "1")).success();
    let expected = [("new", "baseline"), ("own", "overlay"), ("s", "overlaid")];
    assert_eq!(layers(ann), expected.map(|(folder, layer)| json!([folder, layer, null])));
}
