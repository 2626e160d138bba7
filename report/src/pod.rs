//! The place of a program in Kubernetes.

/// A container of a pod, by kubelet's names. The coordinator does not know them: metrics have them as labels if kubelet is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The namespace of the pod.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The container's name in the pod.
    pub container: String,
}
