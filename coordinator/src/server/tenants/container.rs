//! The container and the pod of a process, as its control group tells.

/// The place where a process runs, as far as it can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Container {
    /// The container's number, as its runtime shows it: the first twelve digits.
    pub(in crate::server) id: Option<String>,
    /// The UID of the pod in Kubernetes.
    pub(in crate::server) pod: Option<String>,
}

/// The number of digits of a container's number that are shown, as runtimes do.
const SHOWN: usize = 12;
/// The number of digits of a container's number.
const DIGITS: usize = 64;

impl Container {
    /// That of a process; none if the system does not say. Reads a file of the system's, which takes some microseconds, so it is
    /// asked once.
    pub(in crate::server) fn of(pid: i32) -> Option<Self> {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok().map(|text| Self::read(&text))
    }

    /// The place that distinguishes it from others: the pod, whose containers belong together, or the container. None outside of
    /// both.
    pub(super) fn place(&self) -> Option<&str> {
        self.pod.as_deref().or(self.id.as_deref())
    }

    /// Reads a list of control groups, for example `0::/kubepods.slice/…-pod5f8a….slice/cri-containerd-0123….scope`.
    fn read(text: &str) -> Self {
        let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let mut found = Self::default();
        for part in paths.flat_map(|path| path.split('/')) {
            let part = part.trim_end_matches(".slice").trim_end_matches(".scope");
            let last = part.rsplit(['-', ':']).next().unwrap_or_default();
            if last.len() == DIGITS && last.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                found.id.get_or_insert_with(|| last[..SHOWN].to_owned());
            }
            // `kubepods` has one in it too.
            let after = part.match_indices("pod").filter_map(|(at, word)| part.get(at + word.len()..));
            if let Some(pod) = after.filter_map(uid).next() {
                found.pod.get_or_insert_with(|| pod.replace('_', "-"));
            }
        }
        found
    }
}

/// The length of a pod's UID; and of the UID that kubelet makes up for a pod whose file lies on the node.
const UID: usize = 36;
const STATIC_UID: usize = 32;

/// The pod's UID that a text begins with.
fn uid(text: &str) -> Option<&str> {
    let is_uid = |uid: &&str| {
        uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => matches!(byte, b'-' | b'_'),
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    text.get(..UID).filter(is_uid).or_else(|| text.get(..STATIC_UID).filter(|_| digits == STATIC_UID))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_and_pods_are_found_as_their_runtimes_name_them() {
        let id = "0123456789ab".to_owned() + &"cd".repeat(26);
        let pod = "5f8a9c3e-1b2d-4e5f-8a9b-0c1d2e3f4a5b";
        let slice = pod.replace('-', "_");
        let pods = [
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{id}.scope"
            ),
            format!("0::/kubepods/besteffort/pod{pod}/{id}"),
            format!("12:memory:/kubepods/pod{pod}/{id}\n1:name=systemd:/kubepods/pod{pod}/{id}\n0::/"),
            format!("0::/kubelet/kubepods.slice/kubepods-pod{slice}.slice/crio-{id}.scope/container"),
            format!("0::/system.slice/containerd.service/kubepods-pod{slice}.slice:cri-containerd:{id}"),
        ];
        for text in pods {
            let found = Container::read(&text);
            assert_eq!((found.id.as_deref(), found.pod.as_deref()), (Some("0123456789ab"), Some(pod)), "{text}");
        }
        let on_node = format!("0::/kubepods/besteffort/pod9a89ed4ed22d659e77d6fb192fb42b2e/{id}");
        assert_eq!(Container::read(&on_node).pod.as_deref(), Some("9a89ed4ed22d659e77d6fb192fb42b2e"));
        for text in [
            format!("0::/docker/{id}"),
            format!("0::/system.slice/docker-{id}.scope"),
            format!("0::/machine.slice/libpod-{id}.scope"),
        ] {
            let found = Container::read(&text);
            assert_eq!((found.id.as_deref(), found.pod), (Some("0123456789ab"), None), "{text}");
        }
        for text in ["0::/", "", "0::/user.slice/user-1000.slice/session-2.scope", "0::/podman/tripod", "nonsense"] {
            assert_eq!(Container::read(text), Container::default(), "{text}");
        }
    }
}
