//! Serves metrics over HTTP for `baton serve`, and a page if a setting asks for it.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use baton_coordinator::endpoint::Endpoint;
use baton_coordinator::keeper::{Keeper, Key};
use baton_kubernetes::pods::Pods;
use baton_web::{Finding, Listeners, PodFinder, Shown, Token, listen};
use baton_workbench::output::say;

use super::CliError;
use super::settings::Settings;
use super::units::Listen;

/// The settings that name listeners.
const METRICS: &str = "--metrics";
const PAGE: &str = "--http";

/// kubelet, which knows the programs' pods.
#[derive(Debug)]
struct Kubelet {
    socket: PathBuf,
}

impl PodFinder for Kubelet {
    fn find<'a>(&'a self, gpu: &'a str, names: &'a [&'a str]) -> Finding<'a> {
        Box::pin(async move {
            let pods = Pods::ask(&self.socket).await?;
            Ok(names.iter().map(|name| pods.of(gpu, name).cloned()).collect())
        })
    }
}

/// Files and sockets beside a GPU's socket, for its user.
#[derive(Default)]
pub(super) struct Beside {
    /// The GPU's socket.
    socket: PathBuf,
    /// The socket for its metrics.
    own: Option<UnixListener>,
    /// The page's token, and its file.
    token: Option<(Token, PathBuf)>,
}

impl Beside {
    /// Makes it. The page's token lies beside the socket of the first GPU.
    ///
    /// # Errors
    ///
    /// When a token cannot be drawn or kept.
    pub(super) fn of(endpoint: &Endpoint, settings: &Settings, is_first: bool) -> Result<Self, CliError> {
        // No program may need the metrics.
        let own = endpoint.listen_beside().inspect_err(|error| baton_messages::warn!(no_metrics(error))).ok();
        let is_drawn = is_first && settings.http.is_some() && settings.http_token_file.is_none();
        let token = is_drawn.then(|| {
            let token = Token::drawn()?;
            let file = endpoint.keep_token(token.text())?;
            Ok::<_, CliError>((token, file))
        });
        Ok(Self { socket: endpoint.path().to_owned(), own, token: token.transpose()? })
    }
}

/// Listeners that are open, and not served yet.
pub(super) struct Web {
    listeners: Listeners,
}

impl Web {
    /// Opens the listeners that the settings name, or goes on with those that the coordinator before has left.
    ///
    /// # Errors
    ///
    /// When an address is in use or open to others without need, or a token cannot be used.
    pub(super) fn open(
        settings: &Settings,
        mut beside: Vec<Beside>,
        keeper: &Keeper,
        mut before: BTreeMap<u16, OwnedFd>,
    ) -> Result<Self, CliError> {
        let mut bound = |address, setting| bound(address, setting, keeper, &mut before);
        let kubelet = settings.pod_resources.clone().map(|socket| Box::new(Kubelet { socket }) as Box<dyn PodFinder>);
        let token = beside.iter_mut().find_map(|one| one.token.take());
        let gpus = beside.into_iter().map(|Beside { socket, own, .. }| (socket, own)).collect();
        let mut listeners = Listeners { gpus, pods: kubelet, ..Listeners::default() };
        if let Some(Listen(address)) = settings.metrics {
            let token = settings.metrics_token_file.as_deref().map(Token::of_file).transpose()?;
            if token.is_none() && !address.ip().is_loopback() {
                return Err(baton_messages::metrics_need_a_token(address).into());
            }
            let listener = bound(address, METRICS)?;
            baton_messages::info!(metrics_are_at(listener.local_addr()?));
            listeners.metrics = Some((listener, token));
        }
        if let Some(Listen(address)) = settings.http {
            listeners.page = Some(page(bound(address, PAGE)?, settings, token)?);
        }
        Ok(Self { listeners })
    }

    /// Serves them.
    pub(super) fn start(self) -> Result<(), CliError> {
        Ok(baton_web::start(self.listeners)?)
    }
}

fn page(listener: TcpListener, settings: &Settings, drawn: Option<(Token, PathBuf)>) -> Result<Shown, CliError> {
    // The actual port, if any port would do.
    let address = listener.local_addr()?;
    let token = match (&settings.http_token_file, drawn) {
        (Some(file), _) => {
            say("serve", baton_messages::page_is_at(address, ""));
            Token::of_file(file)?
        }
        (None, Some((token, file))) => {
            // A browser never sends the part after the `#`. A log is kept and read by others, so it does not get the token.
            let secret =
                if std::io::stderr().is_terminal() { format!("#token={}", token.text()) } else { String::new() };
            say("serve", baton_messages::page_is_at(address, secret));
            say("serve", baton_messages::token_is_in(file.display()));
            token
        }
        // Nobody knows it: the first GPU is not served.
        (None, None) => Token::drawn()?,
    };
    if !address.ip().is_loopback() {
        baton_messages::warn!(page_is_open_to_all());
    }
    Ok(Shown { listener, token, control: settings.http_control == Some(true) })
}

/// The listener of a setting: the one that the coordinator before has left, if it still listens where it is to.
fn bound(
    address: SocketAddr,
    setting: &'static str,
    keeper: &Keeper,
    before: &mut BTreeMap<u16, OwnedFd>,
) -> Result<TcpListener, CliError> {
    let number = if setting == METRICS { 0 } else { 1 };
    let is_there = |at: SocketAddr| at.ip() == address.ip() && (address.port() == 0 || at.port() == address.port());
    let listener = match before.remove(&number).map(TcpListener::from) {
        Some(left) if left.local_addr().is_ok_and(is_there) => left,
        left => {
            if left.is_some() {
                // Its port may be wanted.
                keeper.let_go(Key::Listener(number));
            }
            drop(left);
            listen(address).map_err(|error| baton_messages::cannot_listen(setting, address, error))?
        }
    };
    keeper.hold_listener(number, listener.as_fd());
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_was_left_is_used_where_it_listens_and_for_what_it_did() {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let left = listen(any).expect("a free port");
        let at = left.local_addr().expect("it listens");
        let left = || BTreeMap::from([(0, OwnedFd::from(left.try_clone().expect("a descriptor")))]);
        let port = |address, setting, before: &mut BTreeMap<u16, OwnedFd>| {
            bound(address, setting, &Keeper::default(), before).map(|one| one.local_addr().expect("it listens").port())
        };
        assert_eq!(port(any, METRICS, &mut left()).ok(), Some(at.port()), "any port would do");
        assert_eq!(port(at, METRICS, &mut left()).ok(), Some(at.port()));
        assert_ne!(port(any, PAGE, &mut left()).ok(), Some(at.port()), "it is the metrics'");
        assert_ne!(port(([127, 0, 0, 2], 0).into(), METRICS, &mut left()).ok(), Some(at.port()), "elsewhere");
    }
}
