#pragma once

#include "endpoint/endpoint.h"

/*
 * Open the sockets of all planes: per plane one that receives, and one that sends for each entropy value, which is its
 * source port. The first number of an endpoint for which all ports are free is taken. False with errno and a line.
 */
bool sockets_open(struct endpoint *endpoint);
void sockets_close(struct endpoint *endpoint);
/* No descriptor is open: 0 would be the program's. */
void sockets_forget(struct endpoint *endpoint);
