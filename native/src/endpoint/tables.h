#pragma once

#include "endpoint/endpoint.h"

/* Map the tables of an endpoint with as many planes as its addresses; false with errno. */
bool tables_allocate(struct endpoint *endpoint);
void tables_free(struct endpoint *endpoint);
