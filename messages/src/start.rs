//! Messages of a coordinator that starts.

use crate::catalogue::group;

group! {
    "A coordinator that starts";
    "`baton serve` ends with one of these. If `baton run` started it, *the coordinator could not be started* comes first. Messages about folders \
     and files are [above](#folders-and-files).";

    section "Another one is there"; "";

    topic {
        message B0401 serves_already(process, gpu, socket) =
            "a coordinator (process {process}) serves {gpu} already, at {socket}; `baton status --socket {socket}` shows it";
    }
    cause "A GPU has one coordinator of a user.";
    remedy "Use that one, with `--socket` if it is not at the usual place, or end it first.";

    topic {
        message B0402 neither_serves_nor_ends(gpu, process) =
            "another coordinator of {gpu} (process {process}) neither serves nor ends; end it with `kill -9 {process}`";
        message B0403 waits_for_the_last(process) = "waiting for the coordinator of process {process} to end";
    }
    cause "The last coordinator is still ending.";
    remedy "If that takes longer than a minute, do what the message says.";

    topic {
        message B0404 other_gpu_is_served_here(path) =
            "{path}: a coordinator of another GPU serves here already; name another place with --socket";
        message B0405 is_no_socket(path) =
            "{path}: this exists already and is no socket; remove it, or name another place with --socket";
        message B0406 belongs_to_another(path) = "{path}: this belongs to another program; name another place with --socket";
    }
    cause "Two coordinators need two sockets.";
    remedy "Do what the message says.";

    section "Settings"; "";

    topic {
        message B0410 no_such_group(group) = "there is no group called {group} (--allow-group); `groupadd --system` makes one";
        message B0411 cannot_give_to_group(path, group, error) =
            "{path}: the socket cannot be given to group {group} ({error}): only root and members of a group may do that";
    }
    cause "With `--allow-group` the socket is that group's.";
    remedy "Make the group and put users into it, and run the coordinator as root, or as a member.";

    topic {
        message B0412 has_no_effect(setting, needed) = "--{setting} alone has no effect; it needs {needed}";
    }
    cause "The setting is about the page or the metrics on a port, and none is open.";
    remedy "Add the option that the message names, or leave the setting out.";

    topic {
        message B0413 no_amount(word) = "`{word}` is no amount of memory; write for example 8GiB, 512MiB or 90%";
        message B0414 no_percentage(word) = "`{word}` is no percentage; write for example 5%";
        message B0415 no_time(word, error) = "`{word}` is no time ({error}); write for example 20ms";
        message B0416 no_users(word) = "`{word}` is no range of users' numbers; write for example 1000-1999,65534";
        message B0417 time_out_of_range(key, value, least, most) = "{key} cannot be {value}; it is a time from {least} to {most}";
        message B0418 number_out_of_range(key, value, most) = "{key} cannot be {value}; it is a number from 1 to {most}";
        message B0419 gpu_is_no_number(gpu) = "gpus.{gpu}: a GPU is named by its number, as in [gpus.0]";
        message B0420 gpu_names_another(gpu) = "gpus.{gpu}: settings of one GPU name no other";
        around B0421 in_settings_of_gpu(gpu, error) = "gpus.{gpu}: {error}";
        around B0422 in_settings_file(path, error) = "{path}: {error}";
    }
    cause "An option, a variable (`BATON_SERVE_…`) or a line of the configuration file has a value that it cannot have. Other errors in a \
           configuration file name the file and the line.";
    remedy "Correct it.";

    topic {
        message B0423 arena_is_too_large(arena, memory, gpu) =
            "an arena of {arena} is more than the {memory} of {gpu}; ask for less with --arena, at most about 95% of it";
        message B0424 arena_is_too_small() = "the arena has to be at least 2 MiB; see --arena";
        message B0425 headroom_is_too_large(headroom, arena) =
            "a headroom of {headroom} leaves too little of an arena of {arena}; ask for at most half of it";
    }
    cause "The arena has to fit the GPU, beside what contexts and code take, and the headroom has to fit the arena.";
    remedy "Do what the message says.";

    topic {
        message B0426 host_pool_is_too_large(pool, free) =
            "a host pool of {pool} is more than the {free} of memory that is free here; ask for less with --host-pool, or add --force if you \
             know that there will be enough";
        message B0427 cannot_reserve(error) = "reserving addresses for the host pool: {error}";
    }
    cause "The host pool is pinned memory: it has to fit the machine, the limits of its container, and `ulimit -v`.";
    remedy "Ask for less with `--host-pool`.";

    topic {
        message B0428 no_address(word) = "`{word}` is no address and port; write for example 127.0.0.1:7878";
        message B0429 cannot_listen(setting, address, error) = "{setting} {address}: {error}";
    }
    cause "`--http` and `--metrics` take an address of this machine and a port, or a port alone.";
    remedy "If the port is in use, name another one; with several coordinators, each needs its own (`[gpus.N]` in the configuration file).";

    topic {
        message B0430 metrics_need_a_token(address) =
            "--metrics {address} can be reached from other machines; it needs --metrics-token-file";
    }
    cause "Metrics show which programs run.";
    remedy "Name an address of this machine alone (`127.0.0.1:9400`), or a file with a token.";

    topic {
        message B0431 token_is_open(path, mode) = "{path}: others can read this token (mode {mode}); `chmod 600` it";
        message B0432 token_of_another(path, user) = "{path}: this token belongs to user {user}, who knows it; use a file of yours or root's";
        message B0433 is_no_token(path, least, most) =
            "{path}: a token is one word of {least} to {most} characters, such as `openssl rand -hex 24` prints";
    }
    cause "The file that `--http-token-file` or `--metrics-token-file` names holds a token that only you may know.";
    remedy "Do what the message says.";

    section "What `baton serve` says at once"; "";

    topic {
        message B0440 page_is_at(address, secret) = "the page is at http://{address}/{secret}";
        message B0441 token_is_in(path) = "the page's token is in {path}";
    }
    cause "The page asks for its token, and everyone who knows it can see the page. On a terminal the token is a part of the address; in \
           a log \
           it never is.";
    remedy "Open this address in a browser on the same machine ([docs/monitoring](monitoring/README.md#the-page)).";

    topic {
        message B0442 little_gpu_memory_is_free(arena, free, holders) =
            "the arena is to have {arena}, but only {free} of the GPU's memory is free; the rest is held by {holders}";
        part B0443 another_coordinator(process) = "another coordinator (process {process})";
        part B0444 UNSEEN_PROCESSES = "processes that cannot be seen from here";
        part B0445 UNSEEN_PROCESS = "a process that cannot be seen from here";
    }
    cause "Other programs use the GPU without Baton, and the message lists them with what they hold. Those that cannot be seen are in \
           other \
           containers or belong to other users. Until they end, programs may find too little memory.";
    remedy "Start them with `baton run`, or end them, or ask for less with `--arena`.";

    topic {
        message B0446 many_sockets(count) = "the service manager passes on {count} sockets; a coordinator listens at one";
    }
    cause "A unit's socket has several `Listen…=`.";
    remedy "Leave one, or make a unit for each GPU.";

    topic {
        message B0447 unfit_socket() =
            "the service manager passes on a socket that no coordinator listens at; the unit needs `ListenSequentialPacket=` with a path";
    }
    cause "The unit's socket is of another kind.";
    remedy "`packaging/systemd` has one that is right.";

    topic {
        message B0448 no_gpus(word) = "`{word}` names no GPUs; write all, or different numbers, as in 0,2";
        message B0449 socket_is_one_gpus() = "a socket is of one GPU, and several are to be served";
        message B0450 any_is_for_programs() = "`--gpu any` chooses a GPU for a program; `baton serve` serves all, or those you name";
    }
    cause "`--gpu` names GPUs as the driver counts them; `baton run --gpu any` chooses one that is served. Each GPU has a socket of its own, which `--socket` can name for one GPU only.";
    remedy "Name one GPU, or leave out `--socket` (and `BATON_SOCKET`): the sockets then lie side by side in a folder. Leave out `--gpu any`, or write it behind `baton run`.";
}
