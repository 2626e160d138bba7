//! Messages of `baton demo` and `baton bench`.

use crate::catalogue::group;

group! {
    "baton demo and baton bench"; "";

    section ""; "";

    topic {
        part B1401 ANSWERS_DIFFER = "answers differ: this is a bug";
        part B1402 RESULTS_DIFFER = "What programs computed differs from what they compute alone: this is a bug.";
        part B1403 ANSWERS_DIFFER_HERE = "ANSWERS DIFFER";
    }
    cause "A program computed something else than alone.";
    remedy "Report it with the output of `baton doctor` and of the command with `--json`.";

    topic {
        message B1404 no_share() = "a load is more than 0 and less than 1";
    }
    cause "`--load` is a share of what is possible.";
    remedy "Correct it.";

    topic {
        message B1405 nothing_was_shown(switches, bytes) =
            "nothing was shown: {switches} switches, {bytes} bytes moved; is something else using the GPU?";
    }
    cause "The programs never had to share. Other programs on the GPU may have left so little that they ran one after the other.";
    remedy "End them, and try again.";

    topic {
        message B1406 example_failed(program, status, output) = "{program} failed ({status}):\n{output}";
        part B1407 SAYS_NOTHING = "it says nothing";
        part B1408 NO_END = "it does not end";
        part B1409 NO_GOOD_END = "it did not end well";
        part B1410 NOT_READY = "not ready";
        part B1411 NO_ANSWER = "no answer";
    }
    cause "One of the example programs failed, with its output below. Under *alone*, the driver or GPU is at fault. *It says nothing* and \
           *it \
           does not end* mean that it took longer than five minutes.";
    remedy "Run it by itself.";

    topic {
        message B1412 example_coordinator_failed(why) = "the coordinator: {why}";
        part B1413 ENDED_WITHOUT_A_WORD = "it ended without a word";
        part B1414 NOT_READY_IN_TIME = "it does not get ready";
        part B1415 did_not_happen(what) = "this never happened: {what}";
    }
    cause "The coordinator that the command started could not be, for the reason given, or did not do in time what was to be measured. A \
           busy \
           machine is the usual cause.";
    remedy "Try again on a machine with less to do.";

    topic {
        part B1416 never_seen(program) = "{program} ran, but the coordinator has never seen it";
        part B1417 end_is_not_noticed(program) = "{program} ran, but the coordinator does not notice that it has ended";
    }
    cause "The example program did not join, or an end was not noticed within seconds.";
    remedy "Try again; report it if it stays.";

    topic {
        message B1418 driver_is_unusable(path, why) = "{path}: {why}; name another file with --driver, or use --driver sim";
        part B1419 driver_answers(code) = "the driver answers with CUDA error {code}";
    }
    cause "This file is no CUDA driver, or it has no GPU.";
    remedy "Do what the message says.";
}
