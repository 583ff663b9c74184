/* A kernel of a few functions: what there is to trace is how they call each other. */

static unsigned long calls;
unsigned long last_result;

unsigned long factorial(unsigned long n)
{
	calls++;
	return n < 2 ? 1 : n * factorial(n - 1);
}

static unsigned long power(unsigned long base, unsigned long exponent)
{
	unsigned long product = 1;

	while (exponent--)
		product *= base;
	return product;
}

unsigned long binomial(unsigned long n, unsigned long k)
{
	return factorial(n) / (factorial(k) * factorial(n - k));
}

unsigned long polynomial(unsigned long x)
{
	last_result = 3 * power(x, 2) + binomial(5, 2);
	return last_result;
}

unsigned long number_of_calls(void)
{
	return calls;
}
