//! Messages about folders, files and sockets, which many commands use.

use crate::catalogue::group;

group! {
    "Folders and files";
    "Sockets, locks and logs lie in a folder that only you can write to. Otherwise another user could put a socket of theirs in its place.";

    section ""; "";

    topic {
        message B0201 folder_of_another(path, user) =
            "{path}: this folder belongs to user {user}, not to you; remove it, or set XDG_RUNTIME_DIR to a folder of yours";
        message B0202 folder_is_open(path, mode) = "{path}: others can enter this folder (mode {mode}); `chmod 700` it";
        message B0203 is_no_folder(path) = "{path}: this is a link or a file, no folder; remove it";
    }
    cause "The usual folder is not fit. Under `sudo`, `XDG_RUNTIME_DIR` may still name the folder of the user that you came from.";
    remedy "Do what the message says. Under `sudo`, use `sudo -i`, or unset the variable.";

    topic {
        message B0204 owner_could_exchange(path, user) =
            "{path}: this folder belongs to user {user}, who could exchange the socket; use one of yours";
        message B0205 others_could_exchange(path, mode) =
            "{path}: others could exchange the socket in this folder (mode {mode}); use another";
    }
    cause "The folder that `--socket` or `BATON_SOCKET` names is not fit.";
    remedy "Name a folder of yours, or one like `/tmp` where only owners can remove files.";

    topic {
        message B0206 folder_is_yours_alone(path, remedy) =
            "{path}: other users cannot come to this folder, which is yours alone; {remedy}";
        message B0207 others_cannot_enter(path, mode, remedy) = "{path}: other users cannot enter this folder (mode {mode}); {remedy}";
        part B0208 NAME_A_SHARED_FOLDER = "name one with BATON_FOLDER=/run/baton, say, that is not there yet, or `chmod 711` it";
    }
    cause "With `--allow-uid`, other users' programs come to the coordinator's socket. It needs a folder that they can enter and not write \
           to.";
    remedy "Do what the message says.";

    topic {
        message B0209 is_a_link(path) = "{path}: this is a symbolic link, which another user may have put there; remove it";
        message B0210 is_no_own_file(path) = "{path}: this is no file of yours alone, another user may have put it there; remove it";
    }
    cause "A lock or log is not the plain file that Baton makes.";
    remedy "Look whose it is, and remove it.";

    topic {
        message B0211 no_folder_for_locks() = "there is no folder for locks";
    }
    cause "None of the usual folders can be used.";
    remedy "Set `XDG_RUNTIME_DIR` to a folder that only you can enter.";

    topic {
        message B0212 no_home() = "there is no home folder";
    }
    cause "Neither `HOME` nor `XDG_STATE_HOME` names a folder, so what happens is not recorded. The coordinator serves all the same.";
    remedy "Set one of them, or use `baton serve --no-record`.";
}
