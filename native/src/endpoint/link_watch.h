/*
 * Carriers of the planes' interfaces: the kernel announces changes on a socket that the endpoint's thread polls, and the
 * compiled loop turns them into port status at once. Addresses change seldom, and are looked up after an announcement.
 */
#pragma once

struct endpoint;

void link_watch_open(struct endpoint *endpoint); /* before the threads start; a sandbox may not have netlink */
void link_watch_look(struct endpoint *endpoint); /* whether the planes' addresses are there; in the second thread */
void link_watch_close(struct endpoint *endpoint);
