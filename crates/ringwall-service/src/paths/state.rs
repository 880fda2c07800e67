//! The state of path control, and its description for the log, the API and MCP: which host paths a
//! session box shows.

use ringwall_policy::HostView;
use ringwall_risk::Locale;

use crate::error::Error;
use crate::service::Service;

/// Path control with the meaning of "off" on this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathControl {
    On,
    Off {
        view: HostView,
        /// True if boxes write to the host's files where Unix permissions let them: in `full`, as
        /// root.
        is_writable: bool,
    },
}

impl Service {
    pub async fn path_control(&self) -> Result<PathControl, Error> {
        Ok(if self.is_path_control_on().await? { PathControl::On } else { self.path_control_off() })
    }

    /// The meaning of "off" on this server.
    pub(crate) fn path_control_off(&self) -> PathControl {
        let view = self.host_view();
        PathControl::Off { view, is_writable: ringwall_executor::is_writable(view) }
    }

    /// The setting `sandbox.when_disabled`.
    pub(crate) fn host_view(&self) -> HostView {
        self.settings_now().sandbox.when_disabled
    }
}

impl PathControl {
    /// `sandbox.when_disabled` if path control is off.
    pub const fn when_disabled(self) -> Option<HostView> {
        match self {
            PathControl::On => None,
            PathControl::Off { view, .. } => Some(view),
        }
    }

    /// Describes the host paths that a session box shows in addition to the system directories.
    pub fn shown(self, locale: Locale) -> &'static str {
        use HostView::{Full, ReadOnly};

        match (locale, self) {
            (Locale::English, PathControl::On) => {
                "The box shows the allowed paths and no other files of the host beside its system directories; a command \
                 that names another path waits for a person's approval."
            }
            (Locale::Chinese, PathControl::On) => {
                "沙箱只显示允许的路径和主机的系统目录；命令访问其他路径时需人工审批。"
            }
            (Locale::English, PathControl::Off { view: ReadOnly, .. }) => {
                "Nobody is asked. The box shows /etc, /opt and /srv of the host beside its system directories, read-only \
                 and as any user sees them. It shows no home directories, nothing else of the host (/root, /run, /var, …) \
                 and no data of Ringwall."
            }
            (Locale::Chinese, PathControl::Off { view: ReadOnly, .. }) => {
                "不会询问任何人。除系统目录外，沙箱以只读方式显示主机的 /etc、/opt 和 /srv，内容与普通用户所见相同；不显示主目录、\
                 主机的其他内容（/root、/run、/var 等）以及 Ringwall 的数据。"
            }
            (Locale::English, PathControl::Off { view: Full, is_writable: true }) => {
                "Nobody is asked. The box shows all paths of the host as an unprivileged user sees them, and writes \
                 wherever Unix permissions let that user write. Hidden are /run, directories of sockets, known places of \
                 keys, credentials, agents' tokens and shell histories, .env files, and data of Ringwall."
            }
            (Locale::Chinese, PathControl::Off { view: Full, is_writable: true }) => {
                "不会询问任何人。沙箱以非特权用户的身份显示主机的所有路径，并可在 Unix 权限允许的地方写入。隐藏的内容：/run、套接字目录、\
                 已知的密钥、凭据、代理令牌和 shell 历史、.env 文件，以及 Ringwall 的数据。"
            }
            (Locale::English, PathControl::Off { view: Full, is_writable: false }) => {
                "Nobody is asked. The box shows all paths of the host as the server's user sees them, private files of \
                 that user included, read-only. Hidden are /run, directories of sockets, known places of keys, \
                 credentials, agents' tokens and shell histories, .env files, and data of Ringwall."
            }
            (Locale::Chinese, PathControl::Off { view: Full, is_writable: false }) => {
                "不会询问任何人。沙箱以服务器用户的身份只读显示主机的所有路径，包括该用户的私有文件。隐藏的内容：/run、套接字目录、\
                 已知的密钥、凭据、代理令牌和 shell 历史、.env 文件，以及 Ringwall 的数据。"
            }
        }
    }

    /// How to show all paths of the host while path control is off; `None` if they are shown.
    pub fn remedy(self, locale: Locale) -> Option<&'static str> {
        match (self.when_disabled()?, locale) {
            (HostView::Full, _) => None,
            (HostView::ReadOnly, Locale::English) => Some(
                "Off originally meant that all paths are shown: that is sandbox.when_disabled = full. It is set when the \
                 server starts, as RINGWALL_SANDBOX_WHEN_DISABLED=full or as when_disabled = \"full\" under [sandbox] in \
                 ringwall.toml.",
            ),
            (HostView::ReadOnly, Locale::Chinese) => Some(
                "关闭的原意是显示所有路径，即 sandbox.when_disabled = full。它只能在服务器启动时设置：\
                 RINGWALL_SANDBOX_WHEN_DISABLED=full，或在 ringwall.toml 的 [sandbox] 中写 when_disabled = \"full\"。",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_is_given_where_full_is_not_in_force() {
        let off = |view| PathControl::Off { view, is_writable: false };
        for locale in [Locale::English, Locale::Chinese] {
            let remedy = off(HostView::ReadOnly).remedy(locale).unwrap();
            assert!(remedy.contains("sandbox.when_disabled = full"));
            assert!(remedy.contains("RINGWALL_SANDBOX_WHEN_DISABLED=full"));
            assert_eq!(off(HostView::Full).remedy(locale), None);
            assert_eq!(PathControl::On.remedy(locale), None);
        }
    }
}
