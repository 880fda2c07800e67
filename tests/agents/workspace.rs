//! An agent's workspace: through the routes, and on the host's disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::{ApiResponse, Client, encode};

#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    pub(crate) client: Client,
    pub(crate) user: String,
    pub(crate) agent: String,
}

/// Output and exit code of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandResult {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i64,
}

impl Workspace {
    pub(crate) fn new(client: Client, user: &str, agent: &str) -> Self {
        Self { client, user: user.to_owned(), agent: agent.to_owned() }
    }

    /// The workspace of the same agent for another caller and user.
    pub(crate) fn of(&self, client: Client, user: &str) -> Self {
        Self::new(client, user, &self.agent)
    }

    /// The host's path of a file in the workspace.
    pub(crate) fn on_disk(&self, path: &str) -> PathBuf {
        self.client.data().join("workspaces").join(&self.user).join(&self.agent).join(path)
    }

    pub(crate) fn list(&self, path: &str) -> ApiResponse {
        self.client.get(&format!("/v1/{}/files?path={}", self.agent, encode(path)))
    }

    pub(crate) fn listed(&self, path: &str) -> Vec<String> {
        serde_json::from_value(self.list(path).success()).unwrap()
    }

    pub(crate) fn content(&self, path: &str) -> ApiResponse {
        self.page(path, "")
    }

    /// `query` are further query parameters that select a page.
    pub(crate) fn page(&self, path: &str, query: &str) -> ApiResponse {
        self.client.get(&format!("/v1/{}/content?path={}{query}", self.agent, encode(path)))
    }

    pub(crate) fn text(&self, path: &str) -> String {
        self.content(path).success()["content"].as_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, path: &str, content: &str) -> ApiResponse {
        self.client.post(&format!("/v1/{}/write", self.agent), &json!({ "file_path": path, "content": content }))
    }

    /// Writes and expects success.
    pub(crate) fn put(&self, path: &str, content: &str) {
        self.write(path, content).success();
    }

    pub(crate) fn edit(&self, path: &str, old: &str, new: &str, expected: Option<u64>) -> ApiResponse {
        let mut body = json!({ "file_path": path, "old_string": old, "new_string": new });
        if let Some(expected) = expected {
            body["expected_replacements"] = expected.into();
        }
        self.client.post(&format!("/v1/{}/edit", self.agent), &body)
    }

    pub(crate) fn delete(&self, path: &str) -> ApiResponse {
        self.client.delete(&format!("/v1/{}/delete?path={}", self.agent, encode(path)))
    }

    pub(crate) fn upload(&self, name: &str, bytes: &[u8]) -> ApiResponse {
        self.client.upload(&format!("/v1/files/{}/upload", self.agent), name.as_bytes(), bytes)
    }

    /// Status, content type and body.
    pub(crate) fn download(&self, path: &str) -> (u16, String, Vec<u8>) {
        self.client.raw("GET", &format!("/v1/{}/download?path={}", self.agent, encode(path)))
    }

    pub(crate) fn push(&self, zip: &[u8]) -> ApiResponse {
        self.client.upload(&format!("/v1/skills/{}/upload", self.agent), b"skills.zip", zip)
    }

    pub(crate) fn skills(&self) -> Value {
        self.client.get(&format!("/v1/skills/{}/list", self.agent)).success()
    }

    pub(crate) fn skill_names(&self) -> Vec<String> {
        let skills = self.skills();
        skills.as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn delete_skill(&self, name: &str) -> ApiResponse {
        self.client.delete(&format!("/v1/skills/{}/delete?name={}", self.agent, encode(name)))
    }

    pub(crate) fn execute(&self, command: &str) -> ApiResponse {
        self.client.post(&format!("/v1/{}/execute", self.agent), &json!({ "command": command }))
    }

    pub(crate) fn run(&self, command: &str) -> CommandResult {
        CommandResult::read(&self.execute(command).success())
    }

    /// Runs a script that is not limited to allowed commands, and expects success.
    pub(crate) fn script(&self, text: &str) -> String {
        self.put("files/.script", text);
        let result = self.run("bash files/.script");
        assert_eq!(result.code, 0, "{text}: {result:?}");
        self.delete("files/.script").success();
        result.stdout
    }

    /// A skill route of contract 001; `rest` follows user and agent.
    pub(crate) fn skill_route(&self, rest: &str) -> String {
        format!("/v1/skills/{}/{}/{rest}", self.user, self.agent)
    }

    pub(crate) fn sandbox(&self) -> String {
        format!("/v1/sandbox/{}/{}", self.user, self.agent)
    }

    pub(crate) fn sandbox_route(&self, rest: &str) -> String {
        format!("{}/{rest}", self.sandbox())
    }

    pub(crate) fn argv(&self, route: &str, command: &str, arguments: &[&str]) -> ApiResponse {
        self.client.post(&format!("{route}/execute?command={}", encode(command)), &json!(arguments))
    }
}

impl CommandResult {
    pub(crate) fn read(data: &Value) -> Self {
        assert_eq!(data.as_object().unwrap().len(), 3, "{data}");
        let text = |name: &str| data[name].as_str().unwrap_or_else(|| panic!("{name}: {data}")).to_owned();
        Self { stdout: text("stdout"), stderr: text("stderror"), code: data["exit_code"].as_i64().unwrap() }
    }
}

/// Type, mode and content of everything beneath a directory.
pub(crate) fn snapshot(directory: &Path) -> BTreeMap<PathBuf, (char, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let kind = about.file_type();
            let (letter, bytes) = if kind.is_dir() {
                open.push(path.clone());
                ('d', Vec::new())
            } else if kind.is_symlink() {
                ('l', fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
                ('s', Vec::new())
            } else {
                ('f', fs::read(&path).unwrap())
            };
            found.insert(path.strip_prefix(directory).unwrap().to_owned(), (letter, about.mode(), bytes));
        }
    }
    found
}
