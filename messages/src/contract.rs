//! Errors between Baton's parts.

use crate::catalogue::group;

group! {
    "Errors between Baton's parts"; "These can appear anywhere.";

    section ""; "";

    topic {
        message B1601 other_version(theirs, ours) =
            "the other side speaks version {theirs} of Baton's contract and this side version {ours}; use the same build on both sides";
    }
    cause "The program's library, the command and the coordinator are of different builds.";
    remedy "Stop the coordinator, and start all from one build.";

    topic {
        message B1602 unknown_kind(kind) = "a message of unknown kind {kind}";
        message B1603 foreign_gpu(gpu) = "a message about GPU {gpu}, which is none of the coordinator's";
        message B1604 ends_too_early() = "a message that ends too early";
        message B1605 goes_on_after_its_end() = "a message with something after its end";
        message B1606 field_out_of_range(field, value) = "a message whose {field} cannot be {value}";
        message B1607 field_is_too_long(field, length) = "a message whose {field} has {length} entries or bytes, which is too many";
        message B1608 field_is_no_text(field) = "a message whose {field} is no text";
        message B1609 other_descriptors(came, expected) = "a message with {came} descriptors instead of {expected}";
        message B1610 answers_another_question() =
            "the coordinator answers another question; use the same build of Baton for both";
        message B1611 no_greeting() = "the first message has to be a greeting";
        message B1612 said_nothing_for(seconds) = "nothing was said for {seconds} s";
        message B1613 asked_without_the_baton() = "it asked for memory without the baton";
        message B1614 asked_for_part_of_a_granule(bytes) = "it asked for {bytes} bytes, which is no multiple of 2 MiB";
        message B1615 asked_where_no_room_is(bytes, at) = "it asked for {bytes} bytes at {at}, where there is no room";
        message B1616 freed_unmapped_bytes(bytes, at) = "it freed {bytes} bytes at {at}, which it does not have mapped";
        message B1617 used_what_was_not_spare(bytes, at) = "it uses {bytes} bytes at {at} again, which were not spare";
        message B1618 wants_foreign_bytes_in_one_piece(bytes, at) =
            "it wants {bytes} bytes at {at} in one piece, which are not its own";
        message B1620 freed_unmapped_extent(extent) = "it freed extent {extent}, which it does not have mapped";
        message B1621 gave_back_too_much(bytes) = "it gave back {bytes} bytes beside the arena, which it has not leased";
        message B1622 asked_for_unmapped_frame(extent) =
            "it asked for the frame of extent {extent}, which it does not have mapped";
        message B1623 reported_unknown_command(command) = "it reports command {command}, which it was not given";
        message B1624 report_instead_of_request() = "it sent a report where requests belong";
        message B1625 request_before_an_answer() = "it sent a request before the last one was answered";
        message B1626 request_instead_of_report() = "it sent a request where reports belong";
        message B1627 no_control_device() = "it offered something other than the driver's control device";
    }
    cause "Something else than Baton has spoken to the socket, or the builds differ, or it is a bug. The log shows these as *refused a \
           connection* and *is disconnected*.";
    remedy "Use one build of everything. If it comes again, report it with the coordinator's log.";
}
